//! What all handles and permits of a store share.

use super::{metered::Metered, requests::Requests};
use crate::redis::{
    check::Checks,
    clock::Times,
    core::Refusal,
    driver::{self, Cause, Driver, Health, Refused, Wire},
    error::Error,
    outage::Alert,
    transport::Topology,
};
use crate::semaphore::{AcquireError, SemaphoreId, StoreError};
use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicUsize},
    time::Instant,
};

/// A permit of the driver.
pub(super) type Held = driver::Held<Metered<Wire>>;

/// What all handles and permits of a store share.
pub(super) struct Store {
    pub(super) prefix: String,
    pub(super) database: i64,
    pub(super) topology: Arc<dyn Topology>,
    /// What the server calls itself, once a check has seen it: two stores with other addresses of one server
    /// find out that they are one.
    pub(super) server: OnceLock<String>,
    pub(super) times: Times,
    pub(super) driver: Driver<Metered<Wire>>,
    pub(super) requests: Requests,
    pub(super) checks: Checks,
    pub(super) alert: Arc<Alert>,
    /// How many claims may wait, and how many do: those in force, and those on trial.
    pub(super) max_waiting: usize,
    pub(super) waiting: [AtomicUsize; 2],
}

impl Store {
    /// Whether the store itself works, whatever its server does.
    pub(super) fn check_well(&self) -> Result<(), Error> {
        let reason = match self.driver.health() {
            Health::Well => return Ok(()),
            Health::NoKeeper => "the keeper's thread cannot be started",
            Health::Closed => "the store has ended by a panic of its own",
        };
        Err(Error::unconnected(io::Error::other(reason)))
    }

    /// Tells operators when claims begin to fail, and when they succeed again.
    pub(super) fn note(&self, answer: &Result<Held, Refused>) {
        let server = match answer {
            Ok(held) if held.is_degraded() => 0,
            Err(Refused::By(Refusal::Unavailable(server) | Refusal::Failed(server))) => *server,
            Err(Refused::By(Refusal::Congested(_))) => {
                return self.alert.claim_failed(&Error::Congested, &self.times);
            }
            Err(Refused::PausedClock) => {
                return self.alert.claim_failed(&Error::PausedClock, &self.times);
            }
            Err(Refused::Closed | Refused::By(Refusal::Closed | Refusal::Revoked)) => return,
            _ if self.alert.is_begun() => return self.alert.claim_worked(&self.times),
            _ => return,
        };
        let cause = self.cause(server);
        if let Some(error) = cause.downcast_ref() {
            self.alert.claim_failed(error, &self.times);
        }
    }

    /// Why a server was of no use.
    fn cause(&self, server: usize) -> Cause {
        // Without a cause an answer was only too slow.
        let too_slow = || Arc::new(Error::Timeout(self.times.timeout)) as _;
        self.driver.error(server).unwrap_or_else(too_slow)
    }

    /// What a refusal means that is no answer of a server.
    pub(super) fn failure(&self, why: Refused) -> AcquireError {
        if self.driver.is_shut() {
            return AcquireError::Closed;
        }
        let server = match why {
            Refused::Closed | Refused::By(Refusal::Closed) => return AcquireError::Closed,
            Refused::PausedClock => return StoreError::new(Error::PausedClock).into(),
            Refused::By(Refusal::Congested(_)) => return StoreError::new(Error::Congested).into(),
            Refused::By(Refusal::Unavailable(server) | Refusal::Failed(server)) => server,
            // All others are answers.
            Refused::By(_) => 0,
        };
        StoreError::shared(self.cause(server)).into()
    }

    /// What operators ask, and what a check does.
    pub(super) fn protocol(&self) -> &Requests {
        &self.requests
    }

    /// Subscribes until then, to see whether this client may.
    pub(super) async fn check_messages(&self, deadline: Instant) -> Result<(), Error> {
        self.requests.subscribes(deadline).await
    }

    /// The id of a semaphore of this store, by its name.
    pub(super) fn semaphore_id(&self, name: &str) -> SemaphoreId {
        match self.server.get() {
            Some(server) => SemaphoreId::new(format!("{server}/{} {name}", self.database)),
            None => SemaphoreId::new(format!("{self:p} {name}")),
        }
    }

    /// What the server calls itself.
    pub(super) fn is_at(&self, server: &str) {
        self.server.get_or_init(|| server.to_owned());
    }
}
