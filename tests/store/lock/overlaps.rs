//! Finds the processes that held the lock at the same time, from the log that they wrote.
//!
//! Promises: none.

use std::collections::{BTreeMap, BTreeSet};
use testing::fleet::witness::Said;

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
pub(crate) fn judge(log: &[Said]) -> Findings {
    let lost = log.iter().filter(|said| said.word == "lost");
    let lost: BTreeSet<u64> = lost.map(|said| said.token).collect();
    let mut findings = Findings::default();
    for said in log {
        match said.word.as_str() {
            "start" => findings.start(said, &lost),
            "end" | "killed" => drop(findings.holding.remove(&said.process)),
            _ => {}
        }
    }
    findings
}

impl Findings {
    fn start(&mut self, said: &Said, lost: &BTreeSet<u64>) {
        self.grants += 1;
        for &other in self.holding.values() {
            match [other, said.token]
                .iter()
                .find(|token| lost.contains(token))
            {
                Some(&loser) => drop(self.excused.insert(loser)),
                None => self.overlaps.push((other, said.token)),
            }
        }
        self.holding.insert(said.process, said.token);
        if !lost.contains(&said.token) {
            if said.token <= self.highest {
                self.backwards.push(said.token);
            }
            self.highest = self.highest.max(said.token);
        }
    }
}

/// The process that holds the lock at the end of a log, if any.
pub(crate) fn holder(log: &[Said]) -> Option<u32> {
    let last = log.iter().rfind(|said| said.word != "lost")?;
    (last.word == "start").then_some(last.process)
}

fn log(lines: &[(&str, u32, u64)]) -> Vec<Said> {
    let said = |&(word, process, token): &(&str, u32, u64)| Said {
        word: word.to_owned(),
        process,
        token,
    };
    lines.iter().map(said).collect()
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
