//! Mistakes in `acquire.lua`.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant(
        "acquire",
        "if now > tonumber(ARGV[2]) then",
        "if now < 0 then",
        "one key",
        "S5",
    ),
    Mutant(
        "acquire",
        "used < tonumber(ARGV[arg + 1])",
        "used <= tonumber(ARGV[arg + 1])",
        "one key",
        "S1",
    ),
    Mutant(
        "acquire",
        "if not is_contended and used",
        "if used",
        "three clients",
        "F1",
    ),
    Mutant(
        "acquire",
        "call('ZREMRANGEBYSCORE', held, '-inf', expired_before)",
        "call('ZREMRANGEBYSCORE', held, '-inf', text(now - 1))",
        "one key",
        "W",
    ),
    Mutant(
        "acquire",
        "if used > 0 or key == 1 then",
        "if used > 0 then",
        "one key",
        "M",
    ),
    Mutant(
        "acquire",
        "local anything_waits = any_queue(KEYS)",
        "local anything_waits = call('EXISTS', KEYS[2]) == 1",
        "passing at once",
        "F1",
    ),
    Mutant(
        "acquire",
        "      is_contended = call('EXISTS', queue) == 1\n",
        "",
        "at once",
        "F1",
    ),
    Mutant(
        "acquire",
        "        call('SET', token, text(first), 'PX', ttl)\n",
        "",
        "one key",
        "T",
    ),
    Mutant(
        "acquire",
        "if used == 0 or first % 4 == 0 then",
        "if first % 4 == 0 then",
        "one key",
        "T",
    ),
    Mutant(
        "acquire",
        "      used = used + added\n",
        "      used = used + 1\n",
        "one key",
        "A",
    ),
    Mutant(
        "acquire",
        "revive(alive, now, arg, last)",
        "revive(alive, now, arg, arg)",
        "at once",
        "F2",
    ),
    Mutant("acquire", "at = last + 1", "at = last + 2", "two keys", "E"),
];
