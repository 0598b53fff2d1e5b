//! Mistakes in how `acquire_all.lua` defers its writes.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant(
        "acquire_all",
        "end\nwrite_all()\nreturn answer",
        "end\nreturn answer",
        "levels",
        "T",
    ),
    Mutant(
        "acquire_all",
        "      write(semaphore)\n",
        "      write(semaphore)\n      break\n",
        "levels",
        "T",
    ),
    Mutant(
        "acquire_all",
        "    write_all()\n    if not is_revived",
        "    if not is_revived",
        "several at once",
        "A",
    ),
    Mutant(
        "acquire_all",
        "  self.units = false\n",
        "",
        "several at once",
        "A",
    ),
    Mutant(
        "acquire_all",
        "self.used = before + call('ZADD'",
        "self.used = self.used + call('ZADD'",
        "several at once",
        "W",
    ),
    Mutant(
        "acquire_all",
        "self.count, self.used, self.next_token = count + 1, used, self.next_token + 1",
        "self.count, self.next_token = count + 1, self.next_token + 1",
        "several at once",
        "T",
    ),
    Mutant(
        "acquire_all",
        "units[count * 2 + 1], units[count * 2 + 2] = expires_at",
        "units[1], units[2] = expires_at",
        "several at once",
        "A",
    ),
    Mutant(
        "acquire_all",
        "count + 1, used, self.next_token + 1",
        "count + 1, used, self.next_token",
        "several at once",
        "A",
    ),
    Mutant(
        "acquire_all",
        "if is_due or self.is_new then",
        "if self.is_new then",
        "several at once",
        "A",
    ),
    Mutant(
        "acquire_all",
        "self.is_new and math.max(micros, floor) or new_token",
        "self.is_new and micros or new_token",
        "several restarts of tokens",
        "S3",
    ),
    Mutant(
        "acquire_all",
        "if is_due or before == 0 then",
        "if is_due then",
        "levels",
        "T",
    ),
];
