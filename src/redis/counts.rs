//! Counts of permits and waiters for many keys, and the list of live processes.

use super::{
    ask::{To, only},
    error::CallError,
    operate::pause_info,
    protocol::{
        SemaphoreCounts, count_commands, live_processes, read_counts, read_time, stored_name,
    },
    store::Store,
};
use crate::semaphore::{KeyCounts, Policy, Process, StoredKey};
use futures_util::future::{join_all, try_join_all};
use redis::{Value, cmd};
use std::{collections::BTreeMap, time::Instant};

/// The number of keys counted per call. A call keeps a server busy for a millisecond, and other clients are served
/// between calls.
const KEYS_PER_CALL: usize = 500;

/// The number of commands, and so of replies, that count one key.
const COMMANDS_PER_KEY: usize = 3;

/// A key that is counted.
struct IndexedKey {
    /// The position of the key in the caller's list.
    position: usize,
    key: StoredKey,
    /// The name of the key's semaphore.
    name: String,
}

/// The position of a key in the caller's list, and its counts.
type Counted = (usize, KeyCounts);

impl Store {
    pub(super) async fn counts(
        &self,
        policy: &Policy,
        keys: Vec<StoredKey>,
    ) -> Result<Vec<KeyCounts>, CallError> {
        let mut servers: BTreeMap<usize, Vec<IndexedKey>> = BTreeMap::new();
        for (position, key) in keys.into_iter().enumerate() {
            let name = stored_name(&self.owner.prefix, policy, &key);
            let server = servers.entry(self.server_of(&name));
            server.or_default().push(IndexedKey {
                position,
                key,
                name,
            });
        }
        let servers = servers.into_iter();
        let counted = servers.map(|(server, keys)| self.count(server, keys));
        let counted = try_join_all(counted).await?.into_iter().flatten();
        // Sorted by position.
        let counted: BTreeMap<_, _> = counted.collect();
        Ok(counted.into_values().collect())
    }

    /// Counts the keys of one server at its current time.
    async fn count(&self, server: usize, keys: Vec<IndexedKey>) -> Result<Vec<Counted>, CallError> {
        let turn = self.operator_turn().await;
        let time = self.ask(To::Server(server), cmd("TIME"), turn.deadline);
        let now = read_time(time.await?)?;
        drop(turn);
        let mut counted = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_PER_CALL) {
            let turn = self.operator_turn().await;
            let commands = keys.iter().flat_map(|key| count_commands(&key.name, now));
            let replies = self
                .call(To::Server(server), commands.collect(), turn.deadline)
                .await;
            let mut moved: BTreeMap<Option<usize>, Vec<&IndexedKey>> = BTreeMap::new();
            for (key, replies) in keys.iter().zip(replies.chunks(COMMANDS_PER_KEY)) {
                match read_counts(now, replies) {
                    Err(error) if error.is_moving() => {
                        let to = self.new_owner(&error, server);
                        moved.entry(to).or_default().push(key);
                    }
                    found => counted.push(counts_of(key, found?)),
                }
            }
            let moved = moved.into_iter();
            let moved =
                moved.map(|(to, keys)| self.count_at_new_owner(to, keys, now, turn.deadline));
            counted.extend(try_join_all(moved).await?.into_iter().flatten());
        }
        Ok(counted)
    }

    /// The server to which a slot has moved, according to an error of its former owner. `None` if it is not known, or
    /// if the slot is still moving.
    fn new_owner(&self, error: &CallError, from: usize) -> Option<usize> {
        match error.redirect()? {
            // `MOVED`
            (address, false) => self.topology.server_at(address, from),
            // `ASK` redirects one command only, so the key is counted by itself.
            (_, true) => None,
        }
    }

    /// Counts keys whose slots have moved, with one call to their new server. If that server is not known or redirects
    /// too, the keys are counted one by one.
    async fn count_at_new_owner(
        &self,
        server: Option<usize>,
        keys: Vec<&IndexedKey>,
        now: u64,
        until: Instant,
    ) -> Result<Vec<Counted>, CallError> {
        let replies = match server {
            Some(server) => {
                let commands = keys.iter().flat_map(|key| count_commands(&key.name, now));
                self.call(To::Server(server), commands.collect(), until)
                    .await
            }
            None => Vec::new(),
        };
        let counted = keys.iter().enumerate().map(async |(number, key)| {
            let replies = replies.chunks_exact(COMMANDS_PER_KEY).nth(number);
            let found = match replies.map(|replies| read_counts(now, replies)) {
                Some(Err(error)) if !error.is_moving() => return Err(error),
                Some(Ok(found)) => found,
                _ => self.count_by_command(&key.name, now, until).await?,
            };
            Ok(counts_of(key, found))
        });
        try_join_all(counted).await
    }

    /// Counts a semaphore whose slot is moving. Its keys may be on two servers, so each command follows its own
    /// redirect. `now` is a time of the former owner's clock.
    async fn count_by_command(
        &self,
        name: &str,
        now: u64,
        until: Instant,
    ) -> Result<SemaphoreCounts, CallError> {
        let commands = count_commands(name, now).into_iter();
        let replies = commands
            .map(async |command| only(self.call(To::Key(name), vec![command], until).await));
        read_counts(now, &join_all(replies).await)
    }

    pub(super) async fn processes(&self) -> Result<Vec<Process>, CallError> {
        let [_clock, key] = self.owner.keys();
        let mut list = cmd("ZRANGE");
        list.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let commands = vec![cmd("TIME"), list];
        let turn = self.operator_turn().await;
        let replies = self.call(To::Key(&key), commands, turn.deadline).await;
        drop(turn);
        let replies: Result<Vec<_>, _> = replies.into_iter().collect();
        let [time, list] = <[Value; 2]>::try_from(replies?).map_err(|_| CallError::Reply)?;
        let ids = live_processes(list, read_time(time)?)?;
        let described = ids.iter().map(|id| self.described_process(id));
        Ok(join_all(described).await)
    }
}

fn counts_of(key: &IndexedKey, found: SemaphoreCounts) -> Counted {
    let mut counts = KeyCounts::new(key.key.clone(), found.units, found.waiting);
    counts.pause = found.pause.map(pause_info);
    (key.position, counts)
}
