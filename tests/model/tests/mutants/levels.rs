//! Mistakes in how `queue.lua` decides claims of several levels.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant(
        "queue",
        "if is_contended[number] then",
        "if false then",
        "at once",
        "F2",
    ),
    Mutant(
        "queue",
        "call('ZADD', KEYS[number * 4 - 1], 'XX', text",
        "call('ZADD', KEYS[3], 'XX', text",
        "several at once",
        "F2",
    ),
    Mutant(
        "queue",
        "for narrower = 1, at - 1 do",
        "for narrower = 2, at - 1 do",
        "levels",
        "A",
    ),
    Mutant(
        "queue",
        "    release(levels, 1, is_elsewhere and at - 1 or at)\n",
        "",
        "levels",
        "A",
    ),
    Mutant(
        "queue",
        "      is_contended[level.number] = call('EXISTS', level.queue) == 1\n",
        "",
        "several at once",
        "F1",
    ),
    Mutant(
        "queue",
        "      used[level.number] = level.used\n",
        "",
        "several at once",
        "A",
    ),
    Mutant(
        "queue",
        "for level = 1, count do",
        "for level = 1, 1 do",
        "levels",
        "E",
    ),
];
