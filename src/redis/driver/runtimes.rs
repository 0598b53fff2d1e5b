//! The runtimes of this process, and the connections of each; and what the keeper's thread needs.

use crate::redis::core::{Core, RuntimeId, THREAD, Time};
use std::{mem, sync::Arc, time::Duration};
use tokio::runtime::Id;

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

#[derive(Debug)]
enum Line<C> {
    /// There is none, and none is to be made before.
    Absent(Time),
    Connecting,
    Connected(Arc<C>),
}

#[derive(Debug)]
struct Runtime<C> {
    id: Option<Id>,
    /// To each server that it has claimed from, and whether there was ever a connection.
    lines: Vec<(Line<C>, bool)>,
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
        let is_absent = |(line, _): &(Line<C>, bool)| matches!(line, Line::Absent(_));
        let is_vacant = |runtime: &Runtime<C>| runtime.lines.iter().all(is_absent);
        let others = &self.all[1..];
        let known = others.iter().position(|runtime| runtime.id == id);
        let number = match known.or_else(|| others.iter().position(is_vacant)) {
            Some(number) => number + 1,
            None => self.all.len(),
        };
        if known.is_none() {
            let lines = Vec::new();
            match self.all.get_mut(number) {
                Some(vacant) => *vacant = Runtime { id, lines },
                None => self.all.push(Runtime { id, lines }),
            }
        }
        RuntimeId(number as u32)
    }

    fn line(
        &mut self,
        RuntimeId(runtime): RuntimeId,
        server: usize,
    ) -> Option<&mut (Line<C>, bool)> {
        let lines = &mut self.all.get_mut(runtime as usize)?.lines;
        let count = lines.len().max(server + 1);
        lines.resize_with(count, || (Line::Absent(Time::ZERO), false));
        lines.get_mut(server)
    }

    /// Whether a connection is to be made now, by whoever asks.
    pub(super) fn connects(&mut self, now: Time, runtime: RuntimeId, server: usize) -> bool {
        let Some((line, _)) = self.line(runtime, server) else {
            return false;
        };
        let connects = matches!(line, Line::Absent(at) if *at <= now);
        if connects {
            *line = Line::Connecting;
        }
        connects
    }

    /// When the thread is to connect to one of these servers.
    pub(super) fn connects_at(&mut self, servers: impl Iterator<Item = usize>) -> Option<Time> {
        let absent = servers.filter_map(|server| match self.line(THREAD, server)? {
            (Line::Absent(at), _) => Some(*at),
            (Line::Connecting | Line::Connected(_), _) => None,
        });
        absent.min()
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
        let (_, was_connected) = mem::replace(line, (Line::Connected(connection), true));
        was_connected
    }

    /// Returns the connection that is gone, if there was one.
    pub(super) fn gone(&mut self, now: Time, runtime: RuntimeId, server: usize) -> Option<Arc<C>> {
        let (line, _) = self.line(runtime, server)?;
        match mem::replace(line, Line::Absent(now + PAUSE)) {
            Line::Connected(connection) => Some(connection),
            Line::Absent(_) | Line::Connecting => None,
        }
    }

    /// The connection, or `None` while it is being made. Nothing: there is none.
    pub(super) fn state(&mut self, runtime: RuntimeId, server: usize) -> Option<Option<Arc<C>>> {
        match self.line(runtime, server)? {
            (Line::Connected(connection), _) => Some(Some(Arc::clone(connection))),
            (Line::Connecting, _) => Some(None),
            (Line::Absent(_), _) => None,
        }
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
