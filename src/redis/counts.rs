//! How much is held of many keys, and which processes are alive.

use super::{
    ask::{To, only},
    error::CallError,
    operate::pause_info,
    protocol::{Counted, alive, counted_at, counting, name_of, now},
    store::Store,
};
use crate::semaphore::{KeyCounts, Policy, Process, StoredKey};
use futures_util::future::{join_all, try_join_all};
use redis::{Cmd, Value, cmd};
use std::{collections::BTreeMap, time::Instant};

/// How many keys are counted in one call: a server is busy with them for a millisecond, and answers other clients
/// between two of them.
const KEYS: usize = 500;

/// A key that is counted: its position among all, and the name of its semaphore.
type Named = (usize, StoredKey, String);

impl Store {
    pub(super) async fn counts(
        &self,
        policy: &Policy,
        keys: Vec<StoredKey>,
    ) -> Result<Vec<KeyCounts>, CallError> {
        let mut servers: BTreeMap<usize, Vec<Named>> = BTreeMap::new();
        for (position, key) in keys.into_iter().enumerate() {
            let name = name_of(&self.owner.prefix, policy, &key);
            let server = servers.entry(self.server_of(&name));
            server.or_default().push((position, key, name));
        }
        let servers = servers.into_iter();
        let counted = servers.map(|(server, keys)| self.count(server, keys));
        let counted = try_join_all(counted).await?.into_iter().flatten();
        // In the order of the keys.
        let counted: BTreeMap<_, _> = counted.collect();
        Ok(counted.into_values().collect())
    }

    /// Counts keys of one server, by its clock.
    async fn count(
        &self,
        server: usize,
        keys: Vec<Named>,
    ) -> Result<Vec<(usize, KeyCounts)>, CallError> {
        let turn = self.operator_turn().await;
        let time = self.ask(To::Server(server), cmd("TIME"), turn.deadline);
        let now = now(time.await?)?;
        drop(turn);
        let mut counted = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS) {
            let turn = self.operator_turn().await;
            let commands = keys.iter().flat_map(|(.., name)| counting(name, now));
            let replies = self
                .call(To::Server(server), commands.collect(), turn.deadline)
                .await;
            let found = keys
                .iter()
                .zip(replies.chunks(3))
                .map(async |(named, replies)| {
                    let (position, key, name) = named;
                    let found = match counted_at(now, replies) {
                        Err(error) if error.is_moving() => {
                            self.count_moving(name, now, turn.deadline).await?
                        }
                        found => found?,
                    };
                    let mut counts = KeyCounts::new(key.clone(), found.units, found.waiting);
                    counts.pause = found.pause.map(pause_info);
                    Ok((*position, counts))
                });
            counted.extend(try_join_all(found).await?);
        }
        Ok(counted)
    }

    /// Counts a semaphore whose slot is moving, by the clock of the server that has had it. Its keys may be on different
    /// servers, so each command follows its own redirect.
    async fn count_moving(
        &self,
        name: &str,
        now: u64,
        until: Instant,
    ) -> Result<Counted, CallError> {
        let commands = counting(name, now).into_iter();
        let replies = commands
            .map(async |command| only(self.call(To::Key(name), vec![command], until).await));
        counted_at(now, &join_all(replies).await)
    }

    pub(super) async fn processes(&self) -> Result<Vec<Process>, CallError> {
        let [_, key] = self.owner.keys();
        let list = |cmd: &mut Cmd| cmd.arg(&key).arg(0).arg(-1).arg("WITHSCORES").take();
        let commands = vec![cmd("TIME"), list(&mut cmd("ZRANGE"))];
        let turn = self.operator_turn().await;
        let replies = self.call(To::Key(&key), commands, turn.deadline).await;
        drop(turn);
        let replies: Result<Vec<_>, _> = replies.into_iter().collect();
        let [time, list] = <[Value; 2]>::try_from(replies?).map_err(|_| CallError::Reply)?;
        let ids = alive(list, now(time)?)?;
        let known = ids.iter().map(|id| self.who(id));
        Ok(join_all(known).await)
    }
}
