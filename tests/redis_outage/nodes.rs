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

/// The connection breaks so long after these commands.
type Fault = Option<(Of, Duration)>;

#[derive(Clone)]
enum Of {
    Text(String),
    /// Of a node that has these slots.
    Slots(Range<u16>),
}

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

    pub(crate) fn breaks_after(&self, text: &str, time: Duration) {
        *self.fault.lock().expect("no panic") = Some((Of::Text(text.to_owned()), time));
    }

    /// The node that has these slots answers no more.
    pub(crate) fn silence(&self, slots: Range<u16>) {
        *self.fault.lock().expect("no panic") = Some((Of::Slots(slots), FOREVER));
    }

    fn fault_of(&self, command: &Cmd) -> Option<Duration> {
        let fault = self.fault.lock().expect("no panic").clone();
        let (of, time) = fault?;
        let is_of = match of {
            Of::Text(text) => {
                let packed = command.get_packed_command();
                packed.windows(text.len()).any(|it| it == text.as_bytes())
            }
            Of::Slots(slots) => match command.args_iter().nth(3) {
                Some(Arg::Simple(key)) => slots.contains(&slot(key)),
                _ => false,
            },
        };
        is_of.then_some(time)
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
