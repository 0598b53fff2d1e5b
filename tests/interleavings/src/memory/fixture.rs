//! A store with one key, and the witness of that key.

use super::store::MemorySemaphore;
use crate::{
    explore::{block_on, poll},
    semaphore::{Acquire, AcquireError, Claim, Key, Permit, Semaphore},
    witness::Witness,
};
use loom::thread::{self, JoinHandle};
use std::{sync::Arc, task::Poll, time::Duration};

/// A wait that never ends, because the clock stands still.
const WAIT: Duration = Duration::from_secs(60);

pub(super) struct Fixture {
    pub(super) store: MemorySemaphore,
    pub(super) witness: Witness,
    key: Key,
    limit: u32,
}

/// A permit that the witness counts until this value is dropped.
pub(super) struct Held {
    pub(super) permit: Permit,
    fixture: Arc<Fixture>,
}

/// A claim that has begun.
pub(super) struct Waiting {
    acquire: Acquire,
    weight: u32,
    /// The greatest token when the claim began.
    before: u64,
    fixture: Arc<Fixture>,
}

impl Fixture {
    pub(super) fn new(limit: u32) -> Arc<Self> {
        Self::with_key("a", limit)
    }

    pub(super) fn with_key(key: impl Into<Key>, limit: u32) -> Arc<Self> {
        Arc::new(Self {
            store: MemorySemaphore::new(),
            witness: Witness::new(limit),
            key: key.into(),
            limit,
        })
    }

    pub(super) fn claim(&self, weight: u32) -> Claim {
        Claim::new(self.key.clone())
            .with_limit(self.limit)
            .with_weight(weight)
    }

    fn begin(self: &Arc<Self>, claim: Claim, weight: u32) -> Waiting {
        let before = self.witness.last_token();
        Waiting {
            acquire: self.store.acquire(claim),
            weight,
            before,
            fixture: Arc::clone(self),
        }
    }

    /// Acquires without waiting.
    pub(super) fn try_acquire(self: &Arc<Self>, weight: u32) -> Result<Held, AcquireError> {
        match self.begin(self.claim(weight), weight).poll() {
            Ok(answer) => answer,
            Err(_) => panic!("a claim without a wait is answered at once"),
        }
    }

    /// Begins a claim that joins the queue if the key has no room.
    pub(super) fn join_queue(self: &Arc<Self>, weight: u32) -> Waiting {
        self.begin(self.claim(weight).with_wait(WAIT), weight)
    }

    /// Acquires, and waits for the grant.
    pub(super) fn acquire(self: &Arc<Self>, weight: u32) -> Held {
        self.join_queue(weight).granted()
    }

    /// Runs a function on a separate thread.
    pub(super) fn spawn<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Arc<Self>) -> T + 'static,
    ) -> JoinHandle<T> {
        let fixture = Arc::clone(self);
        thread::spawn(move || run(&fixture))
    }

    /// Asserts, after all threads have ended, that everything is free and no claim waits.
    pub(super) fn assert_free(self: &Arc<Self>) {
        assert_eq!(self.witness.held(), 0);
        assert_eq!(self.store.busy_keys(), 0, "a key has permits or waiters");
        let all = self.try_acquire(self.limit);
        assert!(all.is_ok(), "no room although nothing is held");
    }
}

impl Waiting {
    fn held(&self, permit: Permit) -> Held {
        let token = permit.token().expect("it is granted");
        self.fixture
            .witness
            .acquired(self.weight, token, self.before);
        Held {
            permit,
            fixture: Arc::clone(&self.fixture),
        }
    }

    /// Polls the claim once. Returns the claim if it still waits.
    pub(super) fn poll(mut self) -> Result<Result<Held, AcquireError>, Self> {
        match poll(&mut self.acquire) {
            Poll::Ready(answer) => Ok(answer.map(|permit| self.held(permit))),
            Poll::Pending => Err(self),
        }
    }

    /// Waits for the grant.
    pub(super) fn granted(mut self) -> Held {
        let permit = block_on(&mut self.acquire).expect("its wait never ends");
        self.held(permit)
    }
}

impl Held {
    /// Returns the permit, which the witness no longer counts.
    pub(super) fn into_permit(self) -> Permit {
        self.permit.clone()
    }

    /// Changes the weight, if the key has room.
    pub(super) fn resize(&self, weight: u32) -> Result<(), AcquireError> {
        let before = self.permit.weight();
        let witness = &self.fixture.witness;
        if weight < before {
            witness.resized(before, weight);
        }
        block_on(self.permit.resize(weight))?;
        if weight > before {
            witness.resized(before, weight);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fixture.witness.released(self.permit.weight());
    }
}
