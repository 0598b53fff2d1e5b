//! Finds the processes that held the lock at the same time, from the log that they wrote.
//!
//! Promises: none.

use std::collections::{BTreeMap, BTreeSet};
use testing::fleet::witness::Entry;

/// The findings of a lock's log.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Pairs of tokens whose holders overlapped although neither was killed nor had lost the lock.
    pub(crate) overlaps: Vec<(u64, u64)>,
    /// Holders that overlapped another one and noticed that they had lost the lock.
    pub(crate) excused: BTreeSet<u64>,
    /// Holders that had not lost the lock and started with a token no higher than an earlier one.
    pub(crate) backwards: Vec<u64>,
    /// The number of holders that started.
    pub(crate) grants: usize,
    holding: BTreeMap<u32, u64>,
    highest: u64,
}

/// Judges a log of `start`, `end` and `lost`, written by holders, and `killed`, written by the test.
pub(crate) fn judge(log: &[Entry]) -> Findings {
    let lost = log.iter().filter(|entry| entry.word == "lost");
    let lost: BTreeSet<u64> = lost.map(|entry| entry.token).collect();
    let mut findings = Findings::default();
    for entry in log {
        match entry.word.as_str() {
            "start" => findings.start(entry, &lost),
            "end" | "killed" => drop(findings.holding.remove(&entry.process)),
            _ => {}
        }
    }
    findings
}

impl Findings {
    fn start(&mut self, entry: &Entry, lost: &BTreeSet<u64>) {
        self.grants += 1;
        for &other in self.holding.values() {
            match [other, entry.token]
                .iter()
                .find(|token| lost.contains(token))
            {
                Some(&loser) => drop(self.excused.insert(loser)),
                None => self.overlaps.push((other, entry.token)),
            }
        }
        self.holding.insert(entry.process, entry.token);
        if !lost.contains(&entry.token) {
            if entry.token <= self.highest {
                self.backwards.push(entry.token);
            }
            self.highest = self.highest.max(entry.token);
        }
    }
}

/// The process that holds the lock at the end of a log, if any.
pub(crate) fn holder(log: &[Entry]) -> Option<u32> {
    let last = log.iter().rfind(|entry| entry.word != "lost")?;
    (last.word == "start").then_some(last.process)
}

fn log(lines: &[(&str, u32, u64)]) -> Vec<Entry> {
    let entry = |&(word, process, token): &(&str, u32, u64)| Entry {
        word: word.to_owned(),
        process,
        token,
    };
    lines.iter().map(entry).collect()
}

#[test]
fn the_judge_sees_two_holders_at_once() {
    let together = log(&[
        ("start", 1, 7),
        ("start", 2, 8),
        ("end", 1, 7),
        ("end", 2, 8),
    ]);
    assert_eq!(judge(&together).overlaps, [(7, 8)]);
    let apart = log(&[
        ("start", 1, 7),
        ("end", 1, 7),
        ("start", 2, 8),
        ("end", 2, 8),
    ]);
    assert!(judge(&apart).overlaps.is_empty());
}

#[test]
fn the_judge_excuses_dead_holders_and_holders_that_know_of_their_loss() {
    let dead = log(&[("start", 1, 7), ("killed", 1, 0), ("start", 2, 8)]);
    assert!(judge(&dead).overlaps.is_empty());
    let lost = log(&[
        ("start", 1, 7),
        ("start", 2, 8),
        ("end", 1, 7),
        ("lost", 1, 7),
    ]);
    let findings = judge(&lost);
    assert!(findings.overlaps.is_empty());
    assert_eq!(findings.excused, BTreeSet::from([7]));
}

#[test]
fn the_judge_sees_a_token_that_does_not_grow() {
    let same = log(&[("start", 1, 7), ("end", 1, 7), ("start", 2, 7)]);
    assert_eq!(judge(&same).backwards, [7]);
}
