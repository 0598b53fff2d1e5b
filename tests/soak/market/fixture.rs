//! The state that all parts of a run share.

use super::{
    fleet::Fleet,
    in_flight::InFlight,
    plan::{micros, now},
    report::{Report, Troubles, Whom},
};
use std::time::Duration;
use testing::redis::RedisServer;
use tokio::{
    sync::{Mutex, RwLock},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// If a timer is later than this, the machine may be too busy for a refresh.
const LATE: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(50);

pub(crate) struct Fixture {
    pub(crate) server: Mutex<RedisServer>,
    pub(crate) port: u16,
    pub(crate) fleet: Fleet,
    pub(crate) report: Report,
    pub(crate) troubles: Troubles,
    pub(crate) in_flight: InFlight,
    /// Locked for writing while Redis has a fault, so that no process starts.
    pub(crate) reachable: RwLock<()>,
    /// Cancelled when no more faults may begin.
    pub(crate) calm: CancellationToken,
    /// Cancelled when the load must end.
    pub(crate) quiet: CancellationToken,
}

/// A fault that lasts until this value is dropped.
pub(crate) struct Disturbance<'a> {
    fixture: &'a Fixture,
    whom: Whom,
    /// The number of its entry in `Fixture::troubles`.
    trouble: usize,
    /// True if permits may be lost.
    takes_permits: bool,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        // Each answered write is in the file, so it survives a kill of the server.
        let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "no"]);
        Self {
            port: server.port(),
            fleet: Fleet::start(&server).await,
            server: Mutex::new(server),
            report: Report::default(),
            troubles: Troubles::default(),
            in_flight: InFlight::default(),
            reachable: RwLock::default(),
            calm: CancellationToken::new(),
            quiet: CancellationToken::new(),
        }
    }

    /// Begins a fault that is too short for a permit to be lost.
    pub(crate) fn disturb(&self, whom: Whom) -> Disturbance<'_> {
        self.begin(whom, false)
    }

    /// Begins a fault that may make holders lose permits.
    pub(crate) fn displace(&self, whom: Whom) -> Disturbance<'_> {
        self.in_flight.suspend(whom);
        self.begin(whom, true)
    }

    fn begin(&self, whom: Whom, takes_permits: bool) -> Disturbance<'_> {
        Disturbance {
            fixture: self,
            whom,
            trouble: self.troubles.begin(whom),
            takes_permits,
        }
    }

    /// Records the times at which this machine is too busy to judge by the clock, and learns the processes' ids.
    pub(crate) async fn watch(&self) {
        loop {
            let before = now();
            sleep(TICK).await;
            if now() - before > micros(TICK + LATE) {
                self.report.count("times that the machine was late");
                self.troubles.note(Whom::All, before);
            }
            self.fleet.learn();
        }
    }
}

impl Drop for Disturbance<'_> {
    fn drop(&mut self) {
        self.fixture.troubles.end(self.trouble);
        if self.takes_permits {
            self.fixture.in_flight.resume(self.whom);
        }
    }
}
