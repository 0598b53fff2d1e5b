//! The keeper's loop.

mod revoke;
mod tick;

use super::{
    core::Core,
    pulse::Pulse,
    reacquire::{Returning, reacquire},
    refresh::{Refreshed, refresh},
    release::{Pending, release},
    releases::Releases,
    schedule::Schedule,
};
use crate::redis::lease::Lease;
use std::{pin::pin, sync::Arc, time::Instant};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep_until,
};

/// A command to the keeper.
pub(super) enum Command {
    /// Release the lease, and answer whether it was still held.
    Release(Arc<Lease>, Option<oneshot::Sender<bool>>),
    /// A lease was released of which the server has nothing.
    Forget,
    /// Answer whether releases of the semaphore were in flight, once they are completed.
    Settle(Arc<str>, oneshot::Sender<bool>),
    /// Release all leases, and return by the deadline those that could not be released.
    Shutdown(Instant, oneshot::Sender<Vec<Arc<Lease>>>),
}

/// The report of a task that the keeper has spawned.
enum Report {
    /// A refresh is completed.
    Refreshed(Refreshed),
    /// The same for leases whose refresh had failed before.
    RefreshedAgain(Refreshed),
    /// The acquires of lost leases with these serials are over, and these were revoked.
    Reacquired(Vec<u64>, Vec<Arc<Lease>>),
    /// The batch of releases with this number is completed; these have to be tried again.
    Released(u64, Vec<Pending>),
}

/// Commands, or messages, taken at once.
const COMMANDS: usize = 1_024;

struct Task {
    core: Arc<Core>,
    schedule: Schedule,
    releases: Releases,
    returning: Returning,
    shutdowns: Vec<(Instant, oneshot::Sender<Vec<Arc<Lease>>>)>,
    next_tick: Instant,
    next_clock: Instant,
    /// When the process says again who it is.
    next_introduction: Instant,
    /// Whether a lease was refreshed or released since the server's clock was last read.
    is_active: bool,
    pulse: Pulse,
    reports: mpsc::UnboundedSender<Report>,
}

/// Runs until the last sender of commands is dropped and all pending releases are done.
pub(super) async fn run(
    core: Arc<Core>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut revoked: mpsc::UnboundedReceiver<u64>,
) {
    let (reports, mut reported) = mpsc::unbounded_channel();
    let mut task = Task::new(core, reports);
    // Makes the connection, so that the first release need not wait for it.
    task.read_clock();
    let mut alarms = task.core.outage.alarms();
    // The first alarm may have come before this thread ran.
    alarms.mark_changed();
    let (mut taken, mut serials) = (Vec::with_capacity(COMMANDS), Vec::new());
    let mut alarm = pin!(sleep_until(task.next().into()));
    let mut is_open = true;
    while is_open || !task.releases.is_empty() {
        tokio::select! {
            count = commands.recv_many(&mut taken, COMMANDS), if is_open => {
                is_open = count > 0;
                taken.drain(..).for_each(|command| task.take(command));
            }
            Some(report) = reported.recv() => task.apply(report),
            Ok(()) = alarms.changed() => task.count(),
            1.. = revoked.recv_many(&mut serials, COMMANDS) => {
                task.revoke(&serials);
                serials.clear();
            }
            () = &mut alarm => task.wake(),
        }
        task.release();
        task.report_shutdown();
        let next = task.next().into();
        if alarm.deadline() != next {
            alarm.as_mut().reset(next);
        }
    }
}

impl Task {
    fn new(core: Arc<Core>, reports: mpsc::UnboundedSender<Report>) -> Self {
        let now = Instant::now();
        Self {
            schedule: Schedule::new(core.times),
            releases: Releases::new(Arc::clone(&core)),
            returning: Returning::new(core.times),
            shutdowns: Vec::new(),
            next_tick: now + core.times.tick(),
            next_clock: now + core.times.refresh_interval(),
            next_introduction: now,
            is_active: false,
            pulse: Pulse::now(),
            core,
            reports,
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Release(lease, answer) => self.pend(lease, answer),
            Command::Forget => self.schedule.released(),
            Command::Settle(name, settled) => self.releases.settle(&name, settled),
            Command::Shutdown(deadline, done) => {
                self.shutdowns.push((deadline, done));
                self.release_everything();
            }
        }
    }

    fn pend(&mut self, lease: Arc<Lease>, answer: Option<oneshot::Sender<bool>>) {
        self.is_active = true;
        self.schedule.released();
        let pending = Pending::new(lease, answer, &self.core);
        self.releases.push(pending);
    }

    /// Releases all leases, held or being acquired.
    fn release_everything(&mut self) {
        let mut leases = self.schedule.all();
        leases.extend(self.core.registry.drain());
        for lease in leases {
            let was_granted = lease.is_granted();
            let is_sent = lease.release();
            self.core.outage.released(&lease);
            if is_sent {
                self.pend(Arc::clone(&lease), None);
            }
            if was_granted {
                lease.loss.set();
            }
        }
    }

    fn apply(&mut self, report: Report) {
        match report {
            Report::Refreshed(Refreshed { lost, failed }) => {
                self.schedule.refreshed(failed);
                self.reacquire(lost);
            }
            Report::RefreshedAgain(Refreshed { lost, failed }) => {
                let outage = &self.core.outage;
                let kept_until = |lease: &Lease| outage.kept_until(lease);
                self.schedule.refreshed_again(failed, kept_until);
                self.reacquire(lost);
            }
            Report::Reacquired(serials, revoked) => {
                self.returning.end(&serials);
                self.revoke_all_of(&revoked);
            }
            Report::Released(batch, again) => self.releases.completed(batch, again),
        }
    }

    /// When the next work is due that no command starts.
    fn next(&self) -> Instant {
        let deadlines = self.shutdowns.iter().map(|(deadline, _)| *deadline);
        let dues = deadlines.chain(self.releases.next());
        dues.fold(self.next_tick.min(self.schedule.next()), Instant::min)
    }

    fn wake(&mut self) {
        let now = Instant::now();
        self.releases.retry(now);
        if now >= self.next_tick.min(self.schedule.next()) {
            self.next_tick = now + self.core.times.tick();
            self.tick(now);
        }
    }

    fn refresh(&mut self, due: Vec<Arc<Lease>>, report: fn(Refreshed) -> Report) {
        if due.is_empty() {
            return;
        }
        self.is_active = true;
        self.schedule.watch(&due);
        let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
        tokio::spawn(async move {
            let refreshed = refresh(core, due).await;
            let _ = reports.send(report(refreshed));
        });
    }

    /// Acquires lost leases again. What the server may have of one under an id that it gives up is
    /// released before, so that this does not stand in its way.
    fn reacquire(&mut self, lost: Vec<Arc<Lease>>) {
        let lost = self.returning.begin(lost);
        if lost.is_empty() {
            return;
        }
        for old in lost.iter().filter_map(|lease| lease.renew()) {
            if old.release() {
                self.pend(Arc::new(old), None);
            }
        }
        self.release();
        let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
        tokio::spawn(async move {
            let done = |serials, revoked| {
                drop(reports.send(Report::Reacquired(serials, revoked)));
            };
            reacquire(&core, lost, done).await;
        });
    }

    /// Sends pending releases, unless enough batches are in flight.
    fn release(&mut self) {
        for (batch, pending) in self.releases.take() {
            let (core, reports) = (Arc::clone(&self.core), self.reports.clone());
            tokio::spawn(async move {
                let again = release(core, pending).await;
                let _ = reports.send(Report::Released(batch, again));
            });
        }
    }

    fn report_shutdown(&mut self) {
        let (now, is_done) = (Instant::now(), self.releases.is_empty());
        let due = |(deadline, _): &mut (Instant, _)| is_done || now >= *deadline;
        for (_, done) in self.shutdowns.extract_if(.., due) {
            let _ = done.send(self.releases.rest());
        }
    }
}
