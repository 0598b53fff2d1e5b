//! Acquires lost permits again.

use super::core::Core;
use crate::redis::{
    clock::Times,
    dispatch::{Answer, Claim, Level},
    group::{by_server, pieces},
    lease::Lease,
    protocol::Acquired,
};
use futures_util::future::join_all;
use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
    time::Instant,
};

/// Units of lost permits that are acquired again together: an acquire costs the server more than a
/// refresh.
const MAX_UNITS_REACQUIRED: usize = 1_000;

/// The lost leases that are acquired again.
pub(super) struct Returning {
    times: Times,
    /// The serials of those in flight. Each is sent once at a time, so that its answer is about the id
    /// that it has.
    in_flight: HashSet<u64>,
    /// Those that were sent since the last time, by serial, if the next refresh is far.
    sent: HashMap<u64, Arc<Lease>>,
    next: Instant,
}

impl Returning {
    pub(super) fn new(times: Times) -> Self {
        Self {
            times,
            in_flight: HashSet::new(),
            sent: HashMap::new(),
            next: Instant::now(),
        }
    }

    /// Those of the lost leases that are not being acquired yet, from now on.
    pub(super) fn begin(&mut self, mut lost: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
        lost.retain(|lease| self.in_flight.insert(lease.serial));
        if self.times.reacquire_interval().is_some() {
            let sent = lost.iter().map(|lease| (lease.serial, Arc::clone(lease)));
            self.sent.extend(sent);
        }
        lost
    }

    /// These acquires are over, granted or not.
    pub(super) fn end(&mut self, serials: &[u64]) {
        for serial in serials {
            self.in_flight.remove(serial);
        }
    }

    /// Those that were not granted, if it is time to send them again.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<Lease>> {
        let Some(interval) = self.times.reacquire_interval() else {
            return Vec::new();
        };
        if now < self.next {
            return Vec::new();
        }
        self.next = now + interval;
        let sent = mem::take(&mut self.sent).into_values();
        sent.filter(|lease| lease.is_outside()).collect()
    }
}

/// Acquires lost permits again, with the chances of a new claim that does not wait. A permit whose
/// acquire has no answer is acquired again at the next refresh, because only that answer has the
/// token.
///
/// Tells `done` the serials of those that have been sent, and which of them were revoked.
pub(super) async fn reacquire(
    core: &Core,
    lost: Vec<Arc<Lease>>,
    done: impl Fn(Vec<u64>, Revoked),
) {
    let server = |lease: &Arc<Lease>| core.attempts.protocol.server_of(&lease.name());
    let by_server = by_server(lost, server);
    join_all(by_server.map(|lost| reacquire_on_one(core, lost, &done))).await;
}

/// Leases that an operator has revoked.
type Revoked = Vec<Arc<Lease>>;

fn is_revoked(answer: &Answer) -> bool {
    matches!(answer, Ok(Acquired::Revoked))
}

/// Acquires lost permits of one server again.
async fn reacquire_on_one(core: &Core, lost: Vec<Arc<Lease>>, done: &impl Fn(Vec<u64>, Revoked)) {
    for lost in pieces(lost, MAX_UNITS_REACQUIRED, |lease| lease.permit().units()) {
        let deadline = Instant::now() + core.times.timeout;
        let serials = lost.iter().map(|lease| lease.serial).collect();
        let claims = lost.into_iter().map(|lease| {
            let position = None;
            Claim::one(Level { lease, position }, deadline)
        });
        let claims: Vec<_> = claims.collect();
        let answers = core
            .attempts
            .attempt(&claims.iter().collect::<Vec<_>>())
            .await;
        let answered = claims.into_iter().zip(answers);
        let revoked = answered.filter(|(_, answer)| is_revoked(answer));
        let revoked = revoked.flat_map(|(claim, _)| claim.levels);
        done(serials, revoked.map(|level| level.lease).collect());
    }
}
