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
        "call('ZSCORE', alive, revocation_of(id))",
        "call('ZSCORE', alive, id)",
        "revoked",
        "A",
    ),
    Mutant(
        "queue",
        "call('PTTL', queue) < lease",
        "call('PTTL', alive) < lease",
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
        "        call('PEXPIRE', alive, text(lease * LEASES))\n",
        "",
        "one key",
        "T",
    ),
    Mutant(
        "acquire",
        "if ARGV[arg + 1] == '-1' and semaphore.is_revoked(id) then",
        "if false then",
        "revoked",
        "R",
    ),
    Mutant(
        "acquire",
        "first, used = -3, semaphore.release(used, id)",
        "first = -3",
        "revoked",
        "A",
    ),
    Mutant(
        "acquire_all",
        "if level.was_sent and level.semaphore.is_revoked(level.id) then",
        "if false then",
        "revoked levels",
        "R",
    ),
    Mutant(
        "acquire_all",
        "was_sent = ARGV[arg + 2] == '-1'",
        "was_sent = false",
        "revoked levels",
        "R",
    ),
    Mutant(
        "acquire_all",
        "      return refuse(levels, -3, at)\n",
        "      return {-3, at, level.counts.used}\n",
        "revoked levels",
        "A",
    ),
];
