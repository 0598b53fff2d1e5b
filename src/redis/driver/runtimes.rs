//! The runtimes of this process, and the connections of each; and what the keeper's thread needs.

use crate::redis::core::{Core, FOREVER, RuntimeId, THREAD, Time};
use std::{mem, sync::Arc, time::Duration};
use tokio::runtime::{Handle, Id};

/// Where a claim is made that no runtime of Tokio's polls. It has no connections, so the thread carries.
pub(super) const NOWHERE: RuntimeId = RuntimeId(u32::MAX);

/// How long nothing connects after a connection has failed.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// While claims come and go, the thread looks as often, at the full milliseconds of Tokio's timers. So it need not be
/// woken for what they leave.
const TICK: Duration = Duration::from_micros(250);

/// How late it may be.
const SLACK: Duration = Duration::from_millis(1);

/// The longest sleep, because a timer does not notice that the machine was suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// The current runtime, if there is one.
pub(super) fn here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// A runtime's connection to a server.
#[derive(Debug)]
struct Line<C> {
    connection: Option<Arc<C>>,
    was_connected: bool,
    /// When the last attempt to connect has begun.
    tried: Time,
    /// When the next one may begin. [`FOREVER`]: there is a connection, or it is being made.
    next: Time,
}

#[derive(Debug)]
struct Runtime<C> {
    id: Option<Id>,
    /// To each server that it has claimed from.
    lines: Vec<Line<C>>,
}

/// By their numbers. The first is the thread's.
#[derive(Debug)]
pub(super) struct Runtimes<C> {
    all: Vec<Runtime<C>>,
}

impl<C> Runtimes<C> {
    pub(super) fn new() -> Self {
        let (id, lines) = (None, Vec::new());
        Self {
            all: vec![Runtime { id, lines }],
        }
    }

    /// The number of a runtime. One that has ended, so that it has no connections, is forgotten for another.
    pub(super) fn enter(&mut self, id: Option<Id>) -> RuntimeId {
        if id.is_none() {
            return NOWHERE;
        }
        let is_vacant = |runtime: &Runtime<C>| runtime.lines.iter().all(|line| line.next < FOREVER);
        let others = &self.all[1..];
        let known = others.iter().position(|runtime| runtime.id == id);
        let number = match known.or_else(|| others.iter().position(is_vacant)) {
            Some(number) => number + 1,
            None => self.all.len(),
        };
        if known.is_none() {
            let (lines, end) = (Vec::new(), self.all.len().min(number + 1));
            self.all.splice(number..end, [Runtime { id, lines }]);
        }
        RuntimeId(number as u32)
    }

    fn line(&mut self, RuntimeId(runtime): RuntimeId, server: usize) -> Option<&mut Line<C>> {
        let lines = &mut self.all.get_mut(runtime as usize)?.lines;
        let count = lines.len().max(server + 1);
        lines.resize_with(count, || Line {
            connection: None,
            was_connected: false,
            tried: Time::ZERO,
            next: Time::ZERO,
        });
        lines.get_mut(server)
    }

    /// Whether a connection is to be made now, by whoever asks.
    pub(super) fn connects(&mut self, now: Time, runtime: RuntimeId, server: usize) -> bool {
        let line = self.line(runtime, server);
        let line = line.filter(|line| line.next <= now);
        let begins = line.map(|line| (line.tried, line.next) = (now, FOREVER));
        begins.is_some()
    }

    /// When the thread is to connect to one of these servers.
    pub(super) fn connects_at(&mut self, servers: impl Iterator<Item = usize>) -> Option<Time> {
        let next = servers.filter_map(|server| Some(self.line(THREAD, server)?.next));
        next.min()
    }

    /// Returns whether there was a connection before.
    pub(super) fn connected(
        &mut self,
        runtime: RuntimeId,
        server: usize,
        connection: Arc<C>,
    ) -> bool {
        let Some(line) = self.line(runtime, server) else {
            return false;
        };
        line.connection = Some(connection);
        mem::replace(&mut line.was_connected, true)
    }

    /// Returns the connection that is gone, if there was one.
    pub(super) fn gone(&mut self, now: Time, runtime: RuntimeId, server: usize) -> Option<Arc<C>> {
        let line = self.line(runtime, server)?;
        line.next = now + PAUSE;
        line.connection.take()
    }

    /// The connection, if there is one.
    pub(super) fn connection(&mut self, runtime: RuntimeId, server: usize) -> Option<Arc<C>> {
        self.line(runtime, server)?.connection.clone()
    }

    /// Whether an attempt to connect has failed that began since then. One that began before says nothing.
    pub(super) fn has_failed(&mut self, since: Time, runtime: RuntimeId, server: usize) -> bool {
        let line = self.line(runtime, server);
        line.is_some_and(|line| line.tried >= since && line.next < FOREVER)
    }
}

/// What the thread needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Needs {
    #[default]
    Nothing,
    /// It has work before it wakes by itself.
    Bell,
    /// There is none.
    Start,
}

/// What is known of the thread.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) runs: bool,
    /// When it wakes by itself. Zero: it does not sleep.
    sleeps_until: Time,
    /// Whether claims or releases came since it looked.
    pub(super) is_busy: bool,
}

impl Keeper {
    /// Looks what the thread needs, once the lock is released. It has something to do when that is `due`.
    pub(super) fn look(&mut self, core: Option<&Core>, due: Option<Time>, is_used: bool) -> Needs {
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

    /// Whether there is something for it to do before it wakes.
    fn is_late(&self, core: &Core, due: Option<Time>) -> bool {
        let is_due = due.is_some_and(|due| due + SLACK < self.sleeps_until);
        let sleeps = self.sleeps_until > Time::ZERO;
        sleeps && (is_due || core.has_call(THREAD))
    }

    /// Until when it sleeps if `due` is when something is to be done.
    pub(super) fn sleeps(&mut self, now: Time, due: Option<Time>) -> Time {
        let longest = match mem::take(&mut self.is_busy) {
            true => now + TICK,
            false => now + LONGEST,
        };
        self.sleeps_until = due.map_or(longest, |due| due.min(longest));
        self.sleeps_until
    }
}
