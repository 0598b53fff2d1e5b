//! A claim as it is sent, and what its answer does to its leases.

use crate::redis::{
    error::Error,
    lease::Lease,
    protocol::{Acquired, Position, Wanted},
};
use std::{sync::Arc, time::Instant};

/// One claim, as it is sent.
#[derive(Clone)]
pub(in crate::redis) struct Claim {
    /// From the narrowest limit to the widest; mostly one.
    pub(in crate::redis) levels: Vec<Level>,
    /// Until when an answer is of use.
    pub(in crate::redis) deadline: Instant,
}

/// What a claim wants of one semaphore.
#[derive(Clone)]
pub(in crate::redis) struct Level {
    pub(in crate::redis) lease: Arc<Lease>,
    /// How it waits; `None` if it does not.
    pub(in crate::redis) position: Option<Position>,
}

/// The answer to a claim.
pub(in crate::redis) type Answer = Result<Acquired, Error>;

impl Level {
    pub(super) fn wanted(&self) -> Wanted {
        let (permit, is_known) = self.lease.wanted();
        Wanted {
            name: self.lease.name(),
            units: permit,
            position: self.position,
            is_known,
        }
    }
}

impl Claim {
    pub(in crate::redis) fn one(level: Level, deadline: Instant) -> Self {
        Self {
            levels: vec![level],
            deadline,
        }
    }

    /// The name of the semaphore that tells its server: of several levels all are on one server.
    pub(super) fn name(&self) -> Arc<str> {
        self.levels[0].lease.name()
    }

    /// How many units the server may have to grant at once for it. To waiters it grants a bounded
    /// number per call.
    pub(super) fn weight(&self) -> u32 {
        let weights = self.levels.iter().map(|level| match level.position {
            Some(_) => 1,
            None => level.lease.permit().units(),
        });
        weights.sum()
    }

    /// Whether the server has answered before.
    pub(super) fn was_answered(&self) -> bool {
        self.levels[0].lease.was_answered()
    }

    /// All levels are released together.
    pub(super) fn is_released(&self) -> bool {
        self.levels[0].lease.is_released()
    }

    /// It is about to be sent. `false`: the owner has released it, so do not send it.
    pub(super) fn sent(&self, runs_until: u64) -> bool {
        !self.is_released() && self.levels.iter().all(|level| level.lease.sent(runs_until))
    }

    /// Applies the answer to the leases.
    pub(super) fn answered(&self, answer: &Answer, held_until: u64) {
        match answer {
            Ok(acquired) => self.acquired(acquired, held_until),
            Err(error) if error.had_no_effect() => {
                self.levels.iter().for_each(|level| level.lease.not_sent());
            }
            // It is unknown whether the acquire has run.
            Err(_) => {}
        }
    }

    fn acquired(&self, answer: &Acquired, held_until: u64) {
        match answer {
            Acquired::Granted(granted) => {
                for (level, (token, _)) in self.levels.iter().zip(granted) {
                    level.lease.granted(*token, held_until);
                }
            }
            // Up to the level where it waits the server has something of it.
            Acquired::Queued { level: last, .. } => {
                for (at, level) in self.levels.iter().enumerate() {
                    match at <= *last {
                        true => level.lease.queued(),
                        false => level.lease.refused(),
                    }
                }
            }
            Acquired::Full { .. } | Acquired::QueueFull { .. } | Acquired::Revoked => {
                self.levels.iter().for_each(|level| level.lease.refused());
            }
        }
    }
}

#[cfg(test)]
mod tests;
