//! A connection that the user supplied: of any kind, a cluster's too.

use super::{
    address::Place,
    cluster::{SLOTS, slot_of},
    connection::checked,
    topology::{Line, Slots, Topology},
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use futures_util::future::join_all;
use redis::{Cmd, Value, aio::ConnectionLike};
use std::{future::ready, sync::Arc};

/// Into how many parts the slots are divided: a node that does not answer stands for whole parts, but
/// for those that it shares with another. With more of them more probes are sent to a node, or to the only
/// server, that is silent.
const PARTS: usize = 16;

/// How many slots each has.
const PART: usize = SLOTS / PARTS;

/// A connection of the user's, cloned for each call. It is driven by the runtime that made it. A clone
/// cannot subscribe for this store alone, so no messages are received.
#[derive(Clone)]
pub(in crate::redis) struct Supplied<C> {
    pub(in crate::redis) connection: C,
}

impl<C> Topology for Supplied<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn place(&self) -> Place {
        Place::Supplied
    }

    fn address(&self, _: usize) -> String {
        "the server of a supplied connection".to_owned()
    }

    /// It may be one to a cluster.
    fn has_slots(&self) -> bool {
        true
    }

    /// Which nodes there are is not known, so each part of the slots counts as a server: a node that is dead delays and
    /// fails nothing but the parts that it has slots of.
    fn known_slots(&self) -> Slots {
        let parts = (0..PARTS).map(|part| (part * PART..(part + 1) * PART, part));
        parts.collect()
    }

    fn parts(&self, prefix: &str) -> Vec<String> {
        let key = |number: usize| format!("{prefix}{{{number}}}part");
        let keys = |part| {
            let mut keys = (0..).map(key);
            keys.find(|key| slot_of(key.as_bytes()) / PART == part)
        };
        (0..PARTS).filter_map(keys).collect()
    }

    /// One by one, side by side: a cluster sends a pipeline to one node only.
    fn connect(self: Arc<Self>, _: usize) -> BoxFuture<Result<Line, Error>> {
        let call = move |commands: Vec<Cmd>| {
            let commands = commands.into_iter();
            let calls = commands.map(|command| answer(self.connection.clone(), command));
            Box::pin(join_all(calls.collect::<Vec<_>>())) as BoxFuture<_>
        };
        Box::pin(ready(Ok(Line::Supplied(Box::new(call)))))
    }
}

async fn answer<C: ConnectionLike>(mut connection: C, command: Cmd) -> Result<Value, Error> {
    let reply = connection.req_packed_command(&command).await;
    reply.map_err(Error::Redis).and_then(checked)
}
