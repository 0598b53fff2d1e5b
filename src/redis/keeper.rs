//! One task for each store, which holds what this process holds.
//!
//! It refreshes leases three times in their length, sends releases in batches, tells holders of
//! loss and tries to bring lost permits back. It is the only one to refresh and to release, so no
//! refresh outlives a release.

use super::{
    core::Core,
    inbox::{self, Ask, Inbox},
    lease::Lease,
    outbox::{self, Outbox, Parting},
    wheel::{self, Beaten, Leases, Wheel},
};
use futures_util::FutureExt;
use std::{mem, sync::Arc, time::Instant};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
    time::{MissedTickBehavior, interval},
};

/// What the keeper is told.
pub(super) enum Order {
    /// Ask for this claim, together with others.
    Ask(Ask),
    /// A permit's holder is done, and perhaps wants to know whether it was still held.
    Release(Arc<Lease>, Option<oneshot::Sender<bool>>),
    /// Say whether releases of this semaphore were on their way, once they have landed.
    Settle(Arc<str>, oneshot::Sender<bool>),
    /// Release everything, and say by the deadline what could not be.
    Shutdown(Instant, oneshot::Sender<Vec<Arc<Lease>>>),
}

/// What a task of the keeper's has to report.
enum Report {
    Asked,
    Beaten(Beaten),
    Released(u64, Vec<Parting>),
}

/// Orders taken at once.
const ORDERS: usize = 1_024;

struct Keeper {
    core: Arc<Core>,
    wheel: Wheel,
    inbox: Inbox,
    outbox: Outbox,
    turn: u64,
    turned: Instant,
    shutdown: Option<(Instant, oneshot::Sender<Vec<Arc<Lease>>>)>,
    reports: mpsc::UnboundedSender<Report>,
}

/// Starts a keeper. It ends when its last sender is dropped and what it had to release is.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub(super) fn start(core: Arc<Core>) -> mpsc::UnboundedSender<Order> {
    let (sender, orders) = mpsc::unbounded_channel();
    let (reports, inbox) = mpsc::unbounded_channel();
    let keeper = Keeper {
        core,
        wheel: Wheel::new(),
        inbox: Inbox::default(),
        outbox: Outbox::default(),
        turn: 0,
        turned: Instant::now(),
        shutdown: None,
        reports,
    };
    tokio::spawn(keeper.run(orders, inbox));
    sender
}

impl Keeper {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut reports: mpsc::UnboundedReceiver<Report>,
    ) {
        let mut turns = interval(self.core.times.turn());
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut taken = Vec::with_capacity(ORDERS);
        let mut open = true;
        while open || self.outbox.len() > 0 {
            tokio::select! {
                count = orders.recv_many(&mut taken, ORDERS), if open => {
                    open = count > 0;
                    taken.drain(..).for_each(|order| self.take(order));
                }
                Some(report) = reports.recv() => self.hear(report),
                _ = turns.tick() => self.turn(),
            }
            self.ask();
            self.send();
            self.report_shutdown();
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Ask(ask) => self.inbox.push(ask),
            Order::Release(lease, answer) => self.part(lease, answer),
            Order::Settle(name, landed) => self.outbox.settle(name, landed),
            Order::Shutdown(deadline, done) => {
                self.hold();
                self.shutdown = Some((deadline, done));
                for lease in self
                    .wheel
                    .live()
                    .filter(|lease| lease.end())
                    .collect::<Vec<_>>()
                {
                    lease.loss.set();
                    self.part(lease, None);
                }
            }
        }
    }

    /// Takes over what was granted. Returns what is to be refreshed at once.
    fn hold(&mut self) -> Leases {
        self.wheel.hold(self.core.granted.take())
    }

    fn part(&mut self, lease: Arc<Lease>, answer: Option<oneshot::Sender<bool>>) {
        self.outbox.push(Parting::new(lease, answer, &self.core));
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Asked => self.inbox.landed(),
            Report::Released(flight, again) => self.outbox.landed(flight, again, self.turn),
            Report::Beaten(Beaten { troubled, ghosts }) => {
                self.wheel.watch(troubled);
                ghosts.into_iter().for_each(|lease| self.part(lease, None));
            }
        }
    }

    fn turn(&mut self) {
        self.turn += 1;
        let hasty = self.hold();
        if self.slept() {
            self.wheel.watch_all();
        }
        let now = self.core.times.now();
        self.wheel.tell(now);
        self.outbox.turn(self.turn, now);
        let groups = self.wheel.turn(self.turn, hasty);
        if !groups.is_empty() {
            let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
            tokio::spawn(async move {
                // The keeper is gone only when its runtime is.
                let _ = reports.send(Report::Beaten(wheel::beat(core, groups).await));
            });
        }
    }

    /// Whether the last turn is so long ago that a beat may have been missed.
    fn slept(&mut self) -> bool {
        let last = mem::replace(&mut self.turned, Instant::now());
        last.elapsed() > self.core.times.beat()
    }

    /// Asks for what has come, unless enough is in the air.
    fn ask(&mut self) {
        while let Some(asks) = self.inbox.take() {
            let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
            let mut flight = Box::pin(async move {
                inbox::ask(&core, asks).await;
                let _ = reports.send(Report::Asked);
            });
            // Its first poll sends it, whatever this task has done before, so that what came first
            // also arrives first.
            if unconstrained(flight.as_mut()).now_or_never().is_none() {
                tokio::spawn(flight);
            }
        }
    }

    /// Sends what is to be released, unless enough is in the air.
    fn send(&mut self) {
        if let Some((flight, partings)) = self.outbox.take() {
            let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
            tokio::spawn(async move {
                let again = outbox::release(core, partings).await;
                let _ = reports.send(Report::Released(flight, again));
            });
        }
    }

    fn report_shutdown(&mut self) {
        let due = self
            .shutdown
            .take_if(|(deadline, _)| self.outbox.len() == 0 || Instant::now() >= *deadline);
        if let Some((_, done)) = due {
            let _ = done.send(self.outbox.rest().cloned().collect());
        }
    }
}
