//! Mistakes in `usage.lua`.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant(
        "usage",
        "'(' .. text(now), '+inf', 'WITHSCORES'",
        "text(now), '+inf', 'WITHSCORES'",
        "one key",
        "U",
    ),
    Mutant(
        "usage",
        "'(' .. text(now), '+inf', 'WITHSCORES'",
        "'-inf', '+inf', 'WITHSCORES'",
        "one key",
        "U",
    ),
    Mutant("usage", "'+inf', 'WITHSCORES'", "'+inf'", "one key", "U"),
    Mutant(
        "usage",
        "call('ZRANGEBYSCORE', held, '('",
        "call('ZRANGEBYSCORE', alive, '('",
        "one key",
        "U",
    ),
    Mutant(
        "usage",
        "call('ZRANGE', queue, 0, -1)",
        "call('ZRANGE', queue, 0, -1, 'REV')",
        "three clients",
        "U",
    ),
    Mutant(
        "usage",
        "call('ZRANGE', queue, 0, -1)",
        "call('ZRANGE', queue, 0, 0)",
        "three clients",
        "U",
    ),
    Mutant(
        "usage",
        "call('ZRANGE', queue, 0, -1)",
        "call('ZRANGE', alive, 0, -1)",
        "head starts",
        "U",
    ),
    Mutant(
        "usage",
        "tonumber(alive_until) > now then",
        "tonumber(alive_until) >= now then",
        "one key",
        "U",
    ),
    Mutant(
        "usage",
        "if alive_until and tonumber(alive_until) > now then",
        "if alive_until then",
        "one key",
        "U",
    ),
    Mutant(
        "usage",
        "waiting[#waiting + 2] = id, alive_until",
        "waiting[#waiting + 2] = id, '0'",
        "one key",
        "U",
    ),
    Mutant(
        "usage",
        "return {now, ",
        "call('ZREMRANGEBYSCORE', held, '-inf', text(now))\nreturn {now, ",
        "one key",
        "U",
    ),
];
