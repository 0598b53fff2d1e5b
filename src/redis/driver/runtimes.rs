//! The runtimes of this process with their connections, and the state of the keeper's thread.

use crate::semaphore::timer::Backoff;
use proto::core::{Core, RuntimeId, THREAD, Time};
use std::{mem, sync::Arc, time::Duration};
use tokio::{
    runtime::{Handle, Id},
    sync::Notify,
};

/// The runtime of claims that no Tokio runtime polls. It has no connections, so the thread sends its calls.
pub(super) const NOWHERE: RuntimeId = RuntimeId(u32::MAX);

/// The thread's sleep while claims come and go, so that releases need not wake it. Tokio's timers round it up to 1.2 to
/// 2.4 ms.
const BUSY_SLEEP: Duration = Duration::from_micros(250);

/// The thread is not woken for work that is due less than this before it wakes by itself.
const WAKE_SLACK: Duration = Duration::from_millis(1);

/// The longest sleep, because a timer does not notice that the machine was suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long all runtimes try to connect to a server. After that only the thread tries.
const ALL_ATTEMPT_TIME: Duration = Duration::from_secs(2);

/// Returns the current runtime, if any.
pub(super) fn here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// The connection of a runtime to a server, and the attempts to make it.
#[derive(Debug)]
struct ConnectionRecord<C> {
    connection: Option<Arc<C>>,
    /// Notified if the connection may be mute.
    doubted: Arc<Notify>,
    was_connected: bool,
    /// The time at which the last attempt to connect has begun.
    tried: Time,
    /// True while the runtime has a connection, or makes one.
    is_taken: bool,
}

/// Determines the pauses between attempts to connect to a server.
#[derive(Debug, Default)]
struct ConnectPacing {
    backoff: Backoff,
    /// True from a failure on until a connection is made.
    is_failing: bool,
    /// The time from which the next attempt may begin.
    next: Time,
}

impl ConnectPacing {
    fn fail(&mut self, now: Time) {
        self.is_failing = true;
        self.next = now + self.backoff.fail(now);
    }
}

/// How a connection, or an attempt to make one, has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Failed,
    /// The runtime, or the driver, has ended.
    Dropped,
}

#[derive(Debug)]
struct Runtime<C> {
    id: Option<Id>,
    /// One record for each server that the runtime has claimed from.
    records: Vec<ConnectionRecord<C>>,
}

/// The runtimes by number. The first is the thread's.
#[derive(Debug)]
pub(super) struct Runtimes<C> {
    all: Vec<Runtime<C>>,
    /// Two pacings for each server: one for the thread, and one shared by all other runtimes, so that they do not delay
    /// the thread.
    pacings: Vec<[ConnectPacing; 2]>,
}

impl<C> Runtimes<C> {
    pub(super) fn new() -> Self {
        let (id, records) = (None, Vec::new());
        Self {
            all: vec![Runtime { id, records }],
            pacings: Vec::new(),
        }
    }

    /// The number of a runtime. The next new runtime takes the number of a runtime that neither has a connection nor
    /// makes one.
    pub(super) fn enter(&mut self, id: Option<Id>) -> RuntimeId {
        if id.is_none() {
            return NOWHERE;
        }
        let is_vacant =
            |runtime: &Runtime<C>| runtime.records.iter().all(|record| !record.is_taken);
        let others = &self.all[1..];
        let known = others.iter().position(|runtime| runtime.id == id);
        let number = match known.or_else(|| others.iter().position(is_vacant)) {
            Some(number) => number + 1,
            None => self.all.len(),
        };
        if known.is_none() {
            // Replaces the vacant runtime, or appends one.
            let (records, end) = (Vec::new(), self.all.len().min(number + 1));
            self.all.splice(number..end, [Runtime { id, records }]);
        }
        RuntimeId(number as u32)
    }

    fn record(
        &mut self,
        RuntimeId(runtime): RuntimeId,
        server: usize,
    ) -> Option<&mut ConnectionRecord<C>> {
        let records = &mut self.all.get_mut(runtime as usize)?.records;
        let count = records.len().max(server + 1);
        records.resize_with(count, || ConnectionRecord {
            connection: None,
            doubted: Arc::default(),
            was_connected: false,
            tried: Time::ZERO,
            is_taken: false,
        });
        records.get_mut(server)
    }

    fn pacing(&mut self, runtime: RuntimeId, server: usize) -> &mut ConnectPacing {
        let count = self.pacings.len().max(server + 1);
        self.pacings.resize_with(count, Default::default);
        &mut self.pacings[server][usize::from(runtime != THREAD)]
    }

    /// Begins an attempt to connect, if the runtime needs one and may make it now. Returns true if the caller should
    /// connect.
    pub(super) fn begin_connecting(
        &mut self,
        now: Time,
        runtime: RuntimeId,
        server: usize,
    ) -> bool {
        let may_try = runtime == THREAD || !self.is_away(server);
        let may_begin = may_try && self.pacing(runtime, server).next <= now;
        let record = self.record(runtime, server);
        let record = record.filter(|record| may_begin && !record.is_taken);
        let begins = record.map(|record| (record.tried, record.is_taken) = (now, true));
        let pacing = self.pacing(runtime, server);
        if begins.is_some() && pacing.is_failing {
            // So that the other runtimes pause before they try too.
            pacing.fail(now);
        }
        begins.is_some()
    }

    /// True if a server has been away for `ALL_ATTEMPT_TIME` or longer, so that only the thread tries to connect.
    fn is_away(&mut self, server: usize) -> bool {
        let thread = self.pacing(THREAD, server);
        thread.is_failing && thread.backoff.duration() >= ALL_ATTEMPT_TIME
    }

    /// The time at which the thread should next connect to one of these servers.
    pub(super) fn next_attempt(&mut self, servers: impl Iterator<Item = usize>) -> Option<Time> {
        let next = servers.filter_map(|server| {
            let is_taken = self.record(THREAD, server)?.is_taken;
            (!is_taken).then(|| self.pacing(THREAD, server).next)
        });
        next.min()
    }

    /// Notes a connection. Returns true if the runtime was connected before.
    pub(super) fn connected(
        &mut self,
        now: Time,
        runtime: RuntimeId,
        server: usize,
        connection: Arc<C>,
        doubted: &Arc<Notify>,
    ) -> bool {
        self.pacing(runtime, server).is_failing = false;
        // If one runtime has connected, all but the thread may try at once. They share the pacing of `NOWHERE`.
        let others = self.pacing(NOWHERE, server);
        others.next = others.next.min(now);
        let Some(record) = self.record(runtime, server) else {
            return false;
        };
        (record.connection, record.doubted) = (Some(connection), Arc::clone(doubted));
        mem::replace(&mut record.was_connected, true)
    }

    /// Notes the end of a connection, or of an attempt. Returns the connection, if it was made.
    pub(super) fn gone(
        &mut self,
        now: Time,
        runtime: RuntimeId,
        server: usize,
        ending: Ending,
    ) -> Option<Arc<C>> {
        if ending == Ending::Failed {
            self.pacing(runtime, server).fail(now);
        }
        let record = self.record(runtime, server)?;
        record.is_taken = false;
        record.connection.take()
    }

    /// Notes that a call was answered. This resets the pause between attempts to connect, also for other runtimes
    /// unless their attempts fail.
    pub(super) fn note_answer(&mut self, runtime: RuntimeId, server: usize) {
        self.pacing(runtime, server).backoff = Backoff::default();
        let connected = self.pacings[server]
            .iter_mut()
            .filter(|pacing| !pacing.is_failing);
        connected.for_each(|pacing| pacing.backoff = Backoff::default());
    }

    /// The links to notify if the connections to a server may be mute.
    pub(super) fn doubted(&self, server: usize) -> impl Iterator<Item = Arc<Notify>> {
        let records = self
            .all
            .iter()
            .filter_map(move |runtime| runtime.records.get(server));
        let connected = records.filter(|record| record.connection.is_some());
        connected.map(|record| Arc::clone(&record.doubted))
    }

    pub(super) fn connection(&mut self, runtime: RuntimeId, server: usize) -> Option<Arc<C>> {
        self.record(runtime, server)?.connection.clone()
    }

    /// True if an attempt to connect that began at `since` or later has failed, or if the runtime makes no attempts. An
    /// earlier attempt proves nothing.
    pub(super) fn has_failed(&mut self, since: Time, runtime: RuntimeId, server: usize) -> bool {
        if self.is_away(server) {
            return true;
        }
        let record = self.record(runtime, server);
        record.is_some_and(|record| record.tried >= since && !record.is_taken)
    }
}

/// The action that the thread needs from the other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Needs {
    #[default]
    Nothing,
    /// To be woken: it has work before it wakes by itself, or should end.
    Bell,
    /// To be started: no thread runs.
    Start,
}

/// The state of the thread.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// True from the decision to start a thread until it has ended.
    pub(super) runs: bool,
    /// The time at which it wakes by itself. Zero if it does not sleep.
    sleeps_until: Time,
    /// True if claims or releases came since it last looked.
    pub(super) is_busy: bool,
}

impl Keeper {
    /// Decides if the thread must be woken or started once the lock is released. If so, it counts as running and awake
    /// from now on. `due` is the time of its next work.
    pub(super) fn plan_wake(
        &mut self,
        core: Option<&Core>,
        due: Option<Time>,
        is_used: bool,
    ) -> Needs {
        let is_over = !is_used && core.is_none_or(Core::is_idle);
        if !self.runs {
            self.runs = !is_over;
            return match is_over {
                true => Needs::Nothing,
                false => Needs::Start,
            };
        }
        if is_over || core.is_some_and(|core| self.is_late(core, due)) {
            self.sleeps_until = Time::ZERO;
            return Needs::Bell;
        }
        Needs::Nothing
    }

    /// True if it has work before it wakes.
    fn is_late(&self, core: &Core, due: Option<Time>) -> bool {
        let is_due = due.is_some_and(|due| due + WAKE_SLACK < self.sleeps_until);
        let sleeps = self.sleeps_until > Time::ZERO;
        sleeps && (is_due || core.has_call(THREAD))
    }

    /// Returns the time until which it should sleep, and notes that time. `due` is the time of its next work.
    pub(super) fn plan_sleep(&mut self, now: Time, due: Option<Time>) -> Time {
        let longest = match mem::take(&mut self.is_busy) {
            true => now + BUSY_SLEEP,
            false => now + LONGEST_SLEEP,
        };
        self.sleeps_until = due.map_or(longest, |due| due.min(longest));
        self.sleeps_until
    }
}
