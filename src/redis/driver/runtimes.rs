//! The runtimes of this process, and the connections of each.

use crate::redis::core::{RuntimeId, THREAD, Time};
use std::{mem, sync::Arc, time::Duration};
use tokio::runtime::Id;

/// Where a claim is made that no runtime of Tokio's polls. It has no connections, so the thread carries.
pub(super) const NOWHERE: RuntimeId = RuntimeId(u32::MAX);

/// How long nothing connects after a connection has failed.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

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
        let mut runtimes = Self { all: Vec::new() };
        runtimes.add();
        runtimes
    }

    /// The number of a runtime. One that has ended is forgotten for another.
    pub(super) fn enter(&mut self, id: Option<Id>) -> RuntimeId {
        if id.is_none() {
            return NOWHERE;
        }
        let is_it = |runtime: &Runtime<C>| runtime.id == id;
        let number = match self.all.iter().position(is_it) {
            Some(number) => number,
            None => self.vacant(),
        };
        let runtime = &mut self.all[number];
        if runtime.id != id {
            runtime.id = id;
            runtime.lines.clear();
        }
        RuntimeId(number as u32)
    }

    /// One without connections, the thread's apart.
    fn vacant(&mut self) -> usize {
        let is_absent = |(line, _): &(Line<C>, bool)| matches!(line, Line::Absent(_));
        let others = &self.all[1..];
        let found = others
            .iter()
            .position(|runtime| runtime.lines.iter().all(is_absent));
        found.map_or_else(|| self.add(), |found| found + 1)
    }

    fn add(&mut self) -> usize {
        self.all.push(Runtime {
            id: None,
            lines: Vec::new(),
        });
        self.all.len() - 1
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

    pub(super) fn connection(&mut self, runtime: RuntimeId, server: usize) -> Option<Arc<C>> {
        self.state(runtime, server).flatten()
    }
}
