//! Records events and defects, and the times of troubles, so that their consequences are not taken for defects.

use super::plan::now;
use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: Mutex<BTreeMap<String, usize>>,
    /// The defects: how often each was seen, and the first example.
    wrong: Mutex<BTreeMap<&'static str, (usize, String)>>,
}

impl Report {
    pub(crate) fn count(&self, what: impl Display) {
        *lock(&self.counts).entry(what.to_string()).or_default() += 1;
    }

    /// Counts a fault, and prints it, because a defect may be its consequence.
    pub(crate) fn fault(&self, what: impl Display) {
        println!("{} {what}", now() / 1_000);
        self.count(format_args!("faults: {what}"));
    }

    /// Reports a defect if `what` was never counted.
    pub(crate) fn needs(&self, what: &'static str) {
        if !lock(&self.counts).contains_key(what) {
            self.wrong("it never happened", what);
        }
    }

    /// Records a defect, and prints its first example.
    pub(crate) fn wrong(&self, what: &'static str, example: impl Display) {
        let mut wrong = lock(&self.wrong);
        let found = wrong.entry(what).or_insert_with(|| {
            println!("{} WRONG: {what}: {example}", now() / 1_000);
            (0, example.to_string())
        });
        found.0 += 1;
    }

    pub(crate) fn print(&self) {
        for (what, count) in lock(&self.counts).iter() {
            println!("{count:>9} {what}");
        }
    }

    /// # Panics
    ///
    /// Panics if a defect was recorded.
    pub(crate) fn assert_nothing_is_wrong(&self) {
        let wrong = lock(&self.wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes that a fault or a trouble concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    All,
    /// The process at this position of the fleet.
    Process(usize),
}

/// A fault, or a time at which the machine was too busy. Times are in microseconds.
#[derive(Debug)]
struct Trouble {
    whom: Whom,
    from: i64,
    to: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<Vec<Trouble>>);

impl Troubles {
    /// Begins a trouble, which lasts until its number is passed to [`end`](Self::end).
    pub(crate) fn begin(&self, whom: Whom) -> usize {
        let mut troubles = lock(&self.0);
        troubles.push(Trouble {
            whom,
            from: now(),
            to: i64::MAX,
        });
        troubles.len() - 1
    }

    pub(crate) fn end(&self, number: usize) {
        lock(&self.0)[number].to = now();
    }

    /// Records a trouble that has already ended.
    pub(crate) fn note(&self, whom: Whom, from: i64) {
        let to = now();
        lock(&self.0).push(Trouble { whom, from, to });
    }

    /// True if a process had trouble at any time between `from` and `to`. With `All`, of any process.
    pub(crate) fn had(&self, whom: Whom, from: i64, to: i64) -> bool {
        let concerns = |trouble: &Trouble| {
            trouble.whom == Whom::All || whom == Whom::All || trouble.whom == whom
        };
        let troubles = lock(&self.0);
        let mut during = troubles.iter().rev().filter(|trouble| concerns(trouble));
        during.any(|trouble| trouble.from <= to && trouble.to >= from)
    }
}
