//! Finds the keys of a policy on all servers.

use super::{
    clock::Times,
    error::Error,
    protocol::{key_of, names_of},
    transport::{Terms, Transport},
};
use crate::semaphore::{KeyStream, Policy, StoreError, StoredKey};
use futures_util::stream;
use redis::{Cmd, from_redis_value};
use std::{collections::HashSet, sync::Arc, time::Instant, vec};

/// How many names a server looks at in one call, about: for less than a millisecond.
const COUNT: usize = 1_000;

/// What the keys of a semaphore end with that has permits or waiters.
const ENDS: [&str; 2] = [":held", ":queue"];

type Servers = Vec<Arc<dyn Transport>>;

/// A scan that goes on.
struct Scan {
    servers: vec::IntoIter<Arc<dyn Transport>>,
    /// The server that is scanned, and where it goes on.
    at: Option<(Arc<dyn Transport>, Vec<u8>)>,
    names: String,
    times: Times,
    seen: HashSet<StoredKey>,
    found: Vec<StoredKey>,
}

/// The keys of a policy, each once. `None`: there is no telling which servers there are.
pub(super) fn keys(
    servers: Option<Servers>,
    prefix: &str,
    policy: &Policy,
    times: Times,
) -> KeyStream {
    let Some(servers) = servers else {
        let error = StoreError::new("the servers of a supplied connection are not known");
        return Box::pin(stream::iter([Err(error)]));
    };
    let scan = Scan {
        servers: servers.into_iter(),
        at: None,
        names: names_of(prefix, policy),
        times,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    Box::pin(stream::unfold(Some(scan), |scan| async move {
        let mut scan = scan?;
        match scan.next().await {
            Ok(key) => key.map(|key| (Ok(key), Some(scan))),
            // It is the last item.
            Err(error) => Some((Err(StoreError::new(error)), None)),
        }
    }))
}

impl Scan {
    async fn next(&mut self) -> Result<Option<StoredKey>, Error> {
        loop {
            if let Some(key) = self.found.pop() {
                return Ok(Some(key));
            }
            if self.at.is_none() {
                self.at = self.servers.next().map(|server| (server, b"0".to_vec()));
            }
            let Some((server, cursor)) = self.at.take() else {
                return Ok(None);
            };
            let (next, names) = self.scan(&server, &cursor).await?;
            self.at = (next != b"0").then_some((server, next));
            for name in names {
                self.find(&name);
            }
        }
    }

    /// The next cursor, and some names.
    async fn scan(
        &self,
        server: &Arc<dyn Transport>,
        cursor: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
        let mut command = Cmd::new();
        command.arg("SCAN").arg(cursor).arg("MATCH");
        command
            .arg(literal(&self.names) + "*")
            .arg("COUNT")
            .arg(COUNT);
        let terms = Terms::by(Instant::now() + self.times.budget());
        let mut replies = server.send(vec![command], terms).await?;
        let reply = replies.pop().ok_or(Error::Reply)??;
        from_redis_value(reply).map_err(|_| Error::Reply)
    }

    /// Takes note of a key that was not found before.
    fn find(&mut self, name: &[u8]) {
        let name = str::from_utf8(name).unwrap_or_default();
        let rest = name.strip_prefix(&self.names);
        let ends = |rest| ENDS.iter().find_map(|end| str::strip_suffix(rest, end));
        if let Some(key) = rest.and_then(ends).and_then(key_of)
            && self.seen.insert(key.clone())
        {
            self.found.push(key);
        }
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
