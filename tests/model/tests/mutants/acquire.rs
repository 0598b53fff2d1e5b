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
        "ARGV[arg + 2] - used[number] > 0",
        "ARGV[arg + 2] - used[number] >= 0",
        "one key",
        "S1",
    ),
    Mutant(
        "acquire",
        "not is_contended[number] and ",
        "",
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
        "if count > 0 or key == 1 then",
        "if count > 0 then",
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
        "        call('SET', token, text(new_token), 'PX', ttl)\n",
        "",
        "one key",
        "T",
    ),
    Mutant(
        "acquire",
        "if count == 0 or is_due then",
        "if is_due then",
        "one key",
        "T",
    ),
    Mutant(
        "acquire",
        "is_free = is_free and not",
        "is_free = not",
        "levels",
        "S1",
    ),
    Mutant(
        "acquire",
        "contended_claims(begin, equal",
        "contended_claims(at, equal",
        "at once",
        "F2",
    ),
    Mutant(
        "acquire",
        "new_token = math.max(micros, floor)",
        "new_token = micros",
        "several restarts of tokens",
        "S3",
    ),
    Mutant(
        "acquire",
        "  at = first + levels * 4\n",
        "  at = first + levels * 5\n",
        "two keys",
        "E",
    ),
];
