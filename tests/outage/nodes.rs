//! A connection to a server that breaks for some keys, as that to a cluster does.

use redis::{
    Arg, Cmd, Pipeline, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    io,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};
use testing::redis::{RedisServer, slot};

/// The connection breaks so long after the commands for a node that has these slots.
type Fault = Option<(Range<u16>, Duration)>;

const FOREVER: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
pub(crate) struct Nodes {
    connection: MultiplexedConnection,
    fault: Arc<Mutex<Fault>>,
}

impl Nodes {
    pub(crate) async fn connect(server: &RedisServer) -> Self {
        Self {
            connection: testing::stores::connection(&server.url()).await,
            fault: Arc::default(),
        }
    }

    pub(crate) fn breaks_after(&self, slots: Range<u16>, time: Duration) {
        *self.fault.lock().expect("no panic") = Some((slots, time));
    }

    /// The node that has these slots answers no more.
    pub(crate) fn silence(&self, slots: Range<u16>) {
        self.breaks_after(slots, FOREVER);
    }

    fn fault_of(&self, command: &Cmd) -> Option<Duration> {
        let fault = self.fault.lock().expect("no panic").clone();
        let (slots, time) = fault?;
        match command.args_iter().nth(3) {
            Some(Arg::Simple(key)) if slots.contains(&slot(key)) => Some(time),
            _ => None,
        }
    }
}

impl ConnectionLike for Nodes {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            match self.fault_of(cmd) {
                Some(time) => {
                    tokio::time::sleep(time).await;
                    Err(RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe)))
                }
                None => self.connection.req_packed_command(cmd).await,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}
