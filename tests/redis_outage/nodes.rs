//! A connection to a server that breaks for some keys, as that to a cluster does.

use redis::{
    Cmd, Pipeline, RedisError, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use testing::redis::RedisServer;

/// The connection breaks so long after commands that contain the text.
type Fault = Option<(String, Duration)>;

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
        *self.fault.lock().expect("no panic") = Some((text.to_owned(), time));
    }

    fn fault_of(&self, command: &[u8]) -> Option<Duration> {
        let fault = self.fault.lock().expect("no panic").clone();
        let (text, time) = fault?;
        let mut windows = command.windows(text.len());
        windows.any(|part| part == text.as_bytes()).then_some(time)
    }
}

impl ConnectionLike for Nodes {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            match self.fault_of(&cmd.get_packed_command()) {
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
