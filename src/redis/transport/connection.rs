//! One connection, and whether it is alive.
//!
//! Behind a gateway that swallows packets nothing but silence shows that a connection is dead. So
//! a call that ends without an answer, however soon its caller gave up, is followed by a `PING`.
//! If no answer of any call comes for a second from then on, the connection is dead.
//!
//! A server that others have named has its place for a while, its tenure. With that all connections to it end, and
//! nothing is sent over one from then on, not even over one that was being made.
//!
//! Nothing is repeated here, and nothing waits for a new connection: a caller that has lost one makes another.

use super::{endpoint::Endpoint, subscription::Subscription};
use crate::{redis::error::CallError, semaphore::timer};
use redis::{Cmd, Pipeline, RedisConnectionInfo, Value, aio::MultiplexedConnection, cmd};
use scopeguard::{ScopeGuard, guard};
use std::{
    io,
    pin::pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    select,
    sync::{Notify, watch},
    time::sleep,
};

/// A connection on which nothing was answered for so long is pinged. So its end is known before it is needed.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a connection in use is looked at. That is sooner than a claim's own timer, so that no claim has the
/// earliest timer of its runtime: Tokio wakes a thread for each of those.
const TICK: Duration = Duration::from_millis(200);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

const REPLACED: &str = "another server has taken the place of this one";

/// The server's reply to each command, in their order.
pub(in crate::redis) type Replies = Vec<Result<Value, CallError>>;

/// See the module docs. It is driven by the runtime that made it.
pub(in crate::redis) struct Connection {
    multiplexed: MultiplexedConnection,
    /// The user and the password of this connection.
    login: RedisConnectionInfo,
    endpoint: Endpoint,
    tenure: Tenure,
    /// Whether an answer has come since the last look at this.
    answered: AtomicBool,
    /// A call has no answer.
    doubted: Notify,
    /// True once it is of no use for any call.
    ended: watch::Sender<bool>,
}

/// How long a server has its place: until the other end is dropped.
pub(super) type Tenure = watch::Receiver<()>;

/// Of servers whose place no other takes.
static FOREVER: LazyLock<watch::Sender<()>> = LazyLock::new(watch::Sender::default);

impl Connection {
    pub(super) fn new(
        multiplexed: MultiplexedConnection,
        login: RedisConnectionInfo,
        endpoint: Endpoint,
    ) -> Self {
        Self {
            multiplexed,
            login,
            endpoint,
            tenure: FOREVER.subscribe(),
            answered: AtomicBool::new(false),
            doubted: Notify::new(),
            ended: watch::Sender::new(false),
        }
    }

    /// One that ends with the tenure of its server. An error: that is over.
    pub(super) fn during(mut self, tenure: Tenure) -> Result<Arc<Self>, CallError> {
        self.tenure = tenure;
        match self.is_replaced() {
            true => Err(gone(REPLACED)),
            false => Ok(Arc::new(self)),
        }
    }

    /// Subscribes to a channel of the same server.
    pub(in crate::redis) async fn subscribe(
        &self,
        channel: &str,
    ) -> Result<Subscription, CallError> {
        Subscription::open(&self.endpoint, channel).await
    }

    /// The same server.
    pub(in crate::redis) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends commands together, in this order, when it is polled first. As many replies, in their order.
    ///
    /// A broken connection serves no call from then on, and one to a replica none that writes: a name in a URL may
    /// stand for another server by now.
    pub(in crate::redis) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        if self.is_replaced() {
            return vec![Err(gone(REPLACED)); commands.len()];
        }
        // Dropped as such, it casts doubt on the connection.
        let unanswered = guard((), |()| self.doubted.notify_one());
        let replies = send(self.multiplexed.clone(), commands).await.into_iter();
        let without = |error: CallError| error.without_password(&self.login);
        let replies: Replies = replies.map(|reply| reply.map_err(without)).collect();
        ScopeGuard::into_inner(unanswered);
        self.answered.store(true, Relaxed);
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if errors.any(|error| error.is_disconnect() || error.is_code(&["READONLY"])) {
            self.ended.send_replace(true);
        }
        replies
    }

    /// Whether another server has taken the place of this one, so that nothing may be sent over it.
    fn is_replaced(&self) -> bool {
        self.tenure.has_changed().is_err()
    }

    /// True if nothing more should be sent over it.
    pub(in crate::redis) fn is_over(&self) -> bool {
        *self.ended.borrow() || self.is_replaced()
    }

    /// Ready when it has closed. For one caller.
    pub(in crate::redis) async fn closed(&self) {
        let (mut tenure, mut ended) = (self.tenure.clone(), self.ended.subscribe());
        loop {
            let is_busy = self.answered.swap(false, Relaxed);
            let pause = if is_busy { TICK } else { SILENCE };
            select! {
                _ = tenure.changed() => return,
                _ = ended.wait_for(|ended| *ended) => return,
                () = self.doubted.notified() => {}
                () = sleep(pause) => if is_busy || self.answered.load(Relaxed) {
                    continue;
                }
            }
            if !self.is_alive().await {
                return;
            }
        }
    }

    /// Sends a `PING`, and looks whether anything is answered.
    async fn is_alive(&self) -> bool {
        let mut ping = pin!(self.call(vec![cmd("PING")]));
        loop {
            self.answered.store(false, Relaxed);
            match timer::timeout(ANSWER, &mut ping).await {
                Ok(_) => break true,
                Err(_) if self.answered.load(Relaxed) => {}
                Err(_) => break false,
            }
        }
    }
}

async fn send(mut connection: MultiplexedConnection, commands: Vec<Cmd>) -> Replies {
    let count = commands.len();
    match &commands[..] {
        [] => return Vec::new(),
        [command] => {
            let reply = connection.send_packed_command(command).await;
            return vec![reply.map_err(CallError::Redis).and_then(checked)];
        }
        _ => {}
    }
    let mut pipeline = Pipeline::with_capacity(count);
    for command in commands {
        pipeline.add_command(command);
    }
    match connection.send_packed_commands(&pipeline, 0, count).await {
        Ok(values) => values.into_iter().map(checked).collect(),
        Err(error) => vec![Err(CallError::Redis(error)); count],
    }
}

/// An error that the server sent is an error, not a value.
fn checked(value: Value) -> Result<Value, CallError> {
    match value {
        Value::ServerError(error) => Err(CallError::Redis(error.into())),
        value => Ok(value),
    }
}

/// There is no connection for this reason.
pub(super) fn gone(why: &str) -> CallError {
    CallError::unconnected(io::Error::other(why))
}

/// A field of what a server says of itself.
pub(in crate::redis) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}
