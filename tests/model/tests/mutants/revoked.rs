//! Mistakes in what the other scripts do about revoked permits.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant("grant", "string.sub(serial, -12)", "serial", "revoked", "E"),
    Mutant("grant", "'^0*(%x+)$'", "'(%x+)$'", "revoked", "E"),
    Mutant(
        "grant",
        "text(-REVOKED), '+inf'",
        "'-inf', '+inf'",
        "revoked",
        "R",
    ),
    Mutant(
        "grant",
        "local REVOKED = 5000000000000000",
        "local REVOKED = 1000000000000000",
        "revoked",
        "R",
    ),
    Mutant(
        "queue",
        "call('ZSCORE', level.alive, own)",
        "call('ZSCORE', level.alive, level.id)",
        "revoked",
        "A",
    ),
    Mutant(
        "queue",
        "call('PTTL', queue) < short",
        "call('PTTL', alive) < short",
        "revoked queue",
        "T",
    ),
    Mutant(
        "queue",
        "      if call('PTTL', alive) < lease * LEASES then\n",
        "      if true then\n",
        "revoked queue",
        "T",
    ),
    Mutant(
        "queue",
        "        call('PEXPIRE', alive, ttl)\n",
        "",
        "one key",
        "T",
    ),
    Mutant(
        "queue",
        "if level.is_known and is_revoked",
        "if false and is_revoked",
        "revoked",
        "R",
    ),
    Mutant(
        "queue",
        "is_known = string.find(own, '^%-1') ~= nil",
        "is_known = false",
        "revoked levels",
        "R",
    ),
    Mutant(
        "queue",
        "return false, refuse(levels, -3, at)",
        "return false, {-3, at, level.used}",
        "revoked levels",
        "A",
    ),
];
