//! Mistakes in `acquire_all.lua`.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant(
        "acquire_all",
        "if now > tonumber(ARGV[2]) then",
        "if now < 0 then",
        "levels",
        "S5",
    ),
    Mutant(
        "acquire_all",
        "if used > 0 or key == 4 then",
        "if used > 0 then",
        "levels",
        "M",
    ),
    Mutant(
        "acquire_all",
        "if semaphore.is_contended or ARGV[arg + 2] - semaphore.used <= 0 then",
        "if ARGV[arg + 2] - semaphore.used <= 0 then",
        "several at once",
        "F1",
    ),
    Mutant(
        "acquire_all",
        "ARGV[arg + 2] - semaphore.used <= 0",
        "ARGV[arg + 2] - semaphore.used < 0",
        "levels",
        "S1",
    ),
    Mutant(
        "acquire_all",
        "      revive_all(at)\n",
        "",
        "several at once",
        "F2",
    ),
    Mutant(
        "acquire_all",
        "revive(KEYS[ARGV[arg] * 4 - 1], now",
        "revive(KEYS[3], now",
        "several at once",
        "F2",
    ),
    Mutant(
        "acquire_all",
        "for narrower = 1, at - 1 do",
        "for narrower = 2, at - 1 do",
        "levels",
        "A",
    ),
    Mutant(
        "acquire_all",
        "      if level.wait == '' then\n        return refuse(levels, 0, at)\n      end\n",
        "      if level.wait == '' then\n        return {0, at, level.counts.used}\n      end\n",
        "levels",
        "A",
    ),
    Mutant(
        "acquire_all",
        "for arg = first, last, 4 do\n    local self = known[ARGV[arg]] or",
        "for arg = first, first, 4 do\n    local self = known[ARGV[arg]] or",
        "levels",
        "A",
    ),
    Mutant(
        "acquire_all",
        "      level.counts.is_contended = call('EXISTS', level.counts.queue) == 1\n",
        "",
        "several at once",
        "F1",
    ),
];
