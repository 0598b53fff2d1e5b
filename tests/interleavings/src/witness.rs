//! Judges the permits of one key by the observations of their holders.

use loom::cell::UnsafeCell;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

/// The permits of a key. Loom does not see the standard library's lock, so the witness adds no ordering between
/// threads.
pub(crate) struct Witness {
    limit: u32,
    record: Mutex<Record>,
    /// Data that only a holder of the whole limit accesses. Loom fails a scenario in which two accesses are not
    /// ordered. So a release must also be visible in memory before the next acquire.
    own: UnsafeCell<()>,
}

#[derive(Default)]
struct Record {
    /// The held units.
    held: u32,
    /// All tokens so far.
    tokens: BTreeSet<u64>,
}

impl Witness {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            record: Mutex::default(),
            own: UnsafeCell::new(()),
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no other thread has panicked")
    }

    /// The greatest token so far. A claim that begins now gets a greater token.
    pub(crate) fn last_token(&self) -> u64 {
        self.record().tokens.last().copied().unwrap_or_default()
    }

    /// Records a grant of `weight` units. `before` was the greatest token when the claim began.
    pub(crate) fn acquired(&self, weight: u32, token: u64, before: u64) {
        let mut record = self.record();
        record.held += weight;
        assert!(record.held <= self.limit, "more is held than the limit");
        assert!(token > before, "token {token} does not grow");
        assert!(record.tokens.insert(token), "token {token} twice");
        drop(record);
        if weight == self.limit {
            self.own.with_mut(|_| ());
        }
    }

    /// Records a release. Must be called before the units become free.
    pub(crate) fn released(&self, weight: u32) {
        if weight == self.limit {
            self.own.with_mut(|_| ());
        }
        self.record().held -= weight;
    }

    /// Records that a permit changes from `from` to `to` units. Must be called after it has grown, or before it
    /// shrinks.
    pub(crate) fn resized(&self, from: u32, to: u32) {
        let mut record = self.record();
        record.held = record.held - from + to;
        assert!(record.held <= self.limit, "more is held than the limit");
    }

    pub(crate) fn held(&self) -> u32 {
        self.record().held
    }
}
