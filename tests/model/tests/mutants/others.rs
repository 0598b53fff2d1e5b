//! Mistakes in the scripts that refresh, release and read the clock.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant("refresh", "'XX', option, 'CH'", "'CH'", "one key", "S4"),
    Mutant(
        "refresh",
        "  call('ZREMRANGEBYSCORE', held, '-inf', expired_before)\n",
        "",
        "one key",
        "M",
    ),
    Mutant(
        "refresh",
        "call('ZSCORE', KEYS[key], ARGV[arg]) and 1 or 0",
        "1",
        "one key",
        "A",
    ),
    Mutant(
        "release",
        "      call('ZREM', queue, unpack(ARGV, first, last))\n",
        "",
        "three clients",
        "L3",
    ),
    Mutant(
        "release",
        "      advance({held = held, queue = queue, alive = alive, token = token, used = used}, true)\n",
        "",
        "one key",
        "W",
    ),
    Mutant(
        "release",
        "    call('ZREM', held, unpack(ARGV, first, last))\n",
        "    call('DEL', held)\n",
        "one key",
        "S4",
    ),
    Mutant(
        "release",
        "if with_answer or anything_waits and call('EXISTS', queue) == 1 then",
        "if with_answer then",
        "one key",
        "W",
    ),
    Mutant("presence", "tonumber(seen), ", "", "set back", "S3"),
    Mutant(
        "presence",
        "call('PEXPIRE', key, ttl)\n  call('SET', key, text(highest), 'PX', ttl)",
        "call('SET', key, text(highest), 'PX', ttl)",
        "set back",
        "M",
    ),
    Mutant(
        "common",
        "(micros - micros % 1000) / 1000",
        "micros / 1000 + 1",
        "one key",
        "E",
    ),
];
