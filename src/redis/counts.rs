//! How much is held of many keys, and which processes are alive.

use super::{
    ask::{Caller, To},
    error::CallError,
    operate::pause_info,
    protocol::{alive, counted_at, counting, name_of, now},
    store::Store,
};
use crate::semaphore::{KeyCounts, Policy, Process, StoredKey};
use futures_util::future::{join_all, try_join_all};
use redis::{Cmd, Value, cmd};
use std::collections::BTreeMap;

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
        let time = self.ask(To::Server(server), cmd("TIME"), Caller::Operator);
        let now = now(time.await?)?;
        let mut counted = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS) {
            let commands = keys.iter().flat_map(|(.., name)| counting(name, now));
            let replies = self.call(To::Server(server), commands.collect(), Caller::Operator);
            for ((position, key, name), replies) in keys.iter().zip(replies.await.chunks(3)) {
                let found = match counted_at(now, replies) {
                    // Its slot has moved.
                    Err(error) if error.is_moving() => {
                        let commands = counting(name, now).into();
                        let replies = self.call(To::Key(name), commands, Caller::Operator);
                        counted_at(now, &replies.await)?
                    }
                    found => found?,
                };
                let mut counts = KeyCounts::new(key.clone(), found.units, found.waiting);
                counts.pause = found.pause.map(pause_info);
                counted.push((*position, counts));
            }
        }
        Ok(counted)
    }

    pub(super) async fn processes(&self) -> Result<Vec<Process>, CallError> {
        let [_, key] = self.owner.keys();
        let list = |cmd: &mut Cmd| cmd.arg(&key).arg(0).arg(-1).arg("WITHSCORES").take();
        let commands = vec![cmd("TIME"), list(&mut cmd("ZRANGE"))];
        let replies = self.call(To::Key(&key), commands, Caller::Operator).await;
        let replies: Result<Vec<_>, _> = replies.into_iter().collect();
        let [time, list] = <[Value; 2]>::try_from(replies?).map_err(|_| CallError::Reply)?;
        let ids = alive(list, now(time)?)?;
        let known = ids.iter().map(|id| self.who(id));
        Ok(join_all(known).await)
    }
}
