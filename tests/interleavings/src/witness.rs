//! Judges the permits of one key, by what their holders see.

use loom::cell::UnsafeCell;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

/// The permits of a key. Its lock is the standard library's, which loom does not see: the witness
/// brings no order between threads that the store does not.
pub(crate) struct Witness {
    limit: u32,
    book: Mutex<Book>,
    /// What a holder of the whole limit has for itself. Loom fails a scenario in which two accesses
    /// are not ordered, so a release has to come before the next acquire in memory as well.
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

    /// The greatest token so far: of a claim that begins now the token is greater.
    pub(crate) fn last_token(&self) -> u64 {
        self.book().tokens.last().copied().unwrap_or_default()
    }

    /// A permit was granted to a claim that began when `before` was the greatest token.
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

    /// Called before the release.
    pub(crate) fn released(&self, weight: u32) {
        if weight == self.limit {
            self.own.with_mut(|_| ());
        }
        self.book().held -= weight;
    }

    /// A permit that holds `from` units holds `to` from now on: called after it has grown, and before it
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
