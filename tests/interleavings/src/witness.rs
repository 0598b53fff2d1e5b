//! Judges the permits of one key by their holders' observations.

use loom::cell::UnsafeCell;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

/// The permits of a key. The lock is the standard library's, which loom does not see. So the witness adds no ordering
/// between threads to the store's.
pub(crate) struct Witness {
    limit: u32,
    book: Mutex<Book>,
    /// Data that only a holder of the whole limit accesses. Loom fails a scenario in which two accesses are not
    /// ordered, so a release must come before the next acquire in memory too.
    own: UnsafeCell<()>,
}

#[derive(Default)]
struct Book {
    held: u32,
    tokens: BTreeSet<u64>,
}

impl Witness {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            book: Mutex::default(),
            own: UnsafeCell::new(()),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no other thread has panicked")
    }

    /// The greatest token so far. A claim that begins now gets a greater token.
    pub(crate) fn last_token(&self) -> u64 {
        self.book().tokens.last().copied().unwrap_or_default()
    }

    /// Records a permit for a claim that began when `before` was the greatest token.
    pub(crate) fn acquired(&self, weight: u32, token: u64, before: u64) {
        let mut book = self.book();
        book.held += weight;
        assert!(book.held <= self.limit, "more is held than the limit");
        assert!(token > before, "token {token} does not grow");
        assert!(book.tokens.insert(token), "token {token} twice");
        drop(book);
        if weight == self.limit {
            self.own.with_mut(|_| ());
        }
    }

    /// Must be called before the release.
    pub(crate) fn released(&self, weight: u32) {
        if weight == self.limit {
            self.own.with_mut(|_| ());
        }
        self.book().held -= weight;
    }

    /// Records that a permit changes from `from` to `to` units. Must be called after it has grown, or before it
    /// shrinks.
    pub(crate) fn resized(&self, from: u32, to: u32) {
        let mut book = self.book();
        book.held = book.held - from + to;
        assert!(book.held <= self.limit, "more is held than the limit");
    }

    pub(crate) fn held(&self) -> u32 {
        self.book().held
    }
}
