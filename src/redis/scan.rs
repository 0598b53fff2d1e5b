//! Finds the keys of a policy on all servers.

use super::{
    clock::Times,
    error::Error,
    protocol::{key_of, names_of},
    transport::Ask,
};
use crate::semaphore::{KeyPage, KeyStream, Policy, StoreError, StoredKey};
use futures_util::{StreamExt, stream};
use redis::{Cmd, from_redis_value};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    future::ready,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

/// How many names a server looks at in one call, about: for less than a millisecond.
const COUNT: usize = 1_000;

/// For how long the stream of all keys looks for a page.
const TIME: Duration = Duration::from_millis(100);

/// What the keys of a semaphore end with that has permits or waiters.
const ENDS: [&str; 2] = [":held", ":queue"];

/// Finds the keys of one policy.
pub(super) struct Scan {
    /// By names that all processes give them.
    servers: BTreeMap<String, Ask>,
    names: String,
    times: Times,
}

/// Where a scan goes on: on a server, or on the next one if that is gone, at a cursor of the server's.
#[derive(Default)]
pub(super) struct Position {
    server: String,
    cursor: u64,
}

impl Position {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (cursor, server) = text.split_once('@')?;
        let (cursor, server) = (cursor.parse().ok()?, server.to_owned());
        Some(Self { server, cursor })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.cursor, self.server)
    }
}

impl Scan {
    /// `servers`: `None` if there is no telling which there are.
    pub(super) fn new(
        servers: Option<BTreeMap<String, Ask>>,
        prefix: &str,
        policy: &Policy,
        times: Times,
    ) -> Result<Self, StoreError> {
        let unknown = "the servers of a supplied connection are not known";
        Ok(Self {
            servers: servers.ok_or_else(|| StoreError::new(unknown))?,
            names: names_of(prefix, policy),
            times,
        })
    }

    /// All keys, each once.
    pub(super) fn stream(self) -> KeyStream {
        let pages = stream::unfold(
            (Arc::new(self), Some(Position::default())),
            async |(scan, at)| {
                let page = scan.page(at?, TIME).await;
                // An error is the last item.
                let next = page.as_ref().ok().and_then(|page| page.next.as_deref());
                let next = next.and_then(Position::parse);
                Some((page, (scan, next)))
            },
        );
        let mut seen = HashSet::new();
        let keys = pages.flat_map(|page| match page {
            Ok(page) => stream::iter(page.keys.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        });
        Box::pin(keys.filter(move |key| {
            let is_new = key
                .as_ref()
                .map_or(true, |key| seen.insert(StoredKey::clone(key)));
            ready(is_new)
        }))
    }

    /// The keys that are found in this time, or in one call after it, from a position on.
    pub(super) async fn page(&self, from: Position, time: Duration) -> Result<KeyPage, StoreError> {
        let (start, mut keys, mut at) = (Instant::now(), HashSet::new(), Some(from));
        while let Some(position) = at {
            let names;
            (at, names) = self.step(position).await.map_err(StoreError::new)?;
            keys.extend(names.iter().filter_map(|name| self.key_of(name)));
            if keys.len() >= KeyPage::MOST || start.elapsed() >= time {
                break;
            }
        }
        let next = at.map(|at| at.to_string());
        Ok(KeyPage::new(keys.into_iter().collect(), next))
    }

    /// Where the scan goes on, and some names.
    async fn step(&self, at: Position) -> Result<(Option<Position>, Vec<Vec<u8>>), Error> {
        let from = |from| {
            self.servers
                .range::<String, _>((from, Bound::Unbounded))
                .next()
        };
        let Some((name, server)) = from(Bound::Included(&at.server)) else {
            return Ok((None, Vec::new()));
        };
        let cursor = if *name == at.server { at.cursor } else { 0 };
        let (cursor, names) = self.scan(server, cursor).await?;
        let server = match cursor {
            0 => from(Bound::Excluded(name)).map(|(next, _)| next),
            _ => Some(name),
        };
        let server = server.cloned();
        Ok((server.map(|server| Position { server, cursor }), names))
    }

    /// The next cursor of a server, and some names.
    async fn scan(&self, server: &Ask, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), Error> {
        let mut command = Cmd::new();
        command.arg("SCAN").arg(cursor).arg("MATCH");
        command
            .arg(literal(&self.names) + "*")
            .arg("COUNT")
            .arg(COUNT);
        let reply = server(command, Instant::now() + self.times.budget()).await?;
        from_redis_value(reply).map_err(|_| Error::Reply)
    }

    /// The key of a semaphore that has permits or waiters, by the name of one of its keys.
    fn key_of(&self, name: &[u8]) -> Option<StoredKey> {
        let rest = str::from_utf8(name).ok()?.strip_prefix(&self.names)?;
        let mut ends = ENDS.iter();
        ends.find_map(|end| rest.strip_suffix(end)).and_then(key_of)
    }
}

/// A pattern that matches this text only.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
