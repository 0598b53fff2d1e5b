//! One connection, and the check that it is alive.
//!
//! Behind a gateway that drops packets, only silence shows that a connection is dead. So a `PING` follows each call
//! that ends without an answer, however soon its caller gave up. If nothing is answered within a second after that, the
//! connection is dead.
//!
//! A server that other servers have named, such as a primary that Sentinels name, may be replaced. The time until then
//! is its tenure. When the tenure ends, all connections to the server end. Nothing is sent over them from then on, not
//! even over a connection that was being made.
//!
//! Nothing is repeated here, and nothing waits for a new connection: a caller that has lost its connection makes a new
//! one.

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

/// A connection without answers for this time is pinged, so that its end is known before the connection is needed.
const SILENCE: Duration = Duration::from_secs(5);

/// The interval at which a connection in use is checked. It is shorter than a claim's timeout, so that the earliest
/// timer of a runtime is this check and not a claim: Tokio wakes a thread for each new earliest timer.
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
    /// True if an answer has come since the last check.
    answered: AtomicBool,
    /// Notified when a call ends without an answer.
    doubted: Notify,
    /// True once no more calls should use the connection.
    ended: watch::Sender<bool>,
}

/// The tenure of a server: see the module docs. It ends when the sender is dropped.
pub(super) type Tenure = watch::Receiver<()>;

/// The tenure of servers that are never replaced.
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

    /// Makes the connection end with the tenure of its server. Fails if the tenure has ended.
    pub(super) fn during(mut self, tenure: Tenure) -> Result<Arc<Self>, CallError> {
        self.tenure = tenure;
        match self.is_replaced() {
            true => Err(no_connection(REPLACED)),
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

    /// The server of the connection.
    pub(in crate::redis) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends commands together, in this order, at the first poll. Returns one reply for each command, in the same
    /// order.
    ///
    /// A connection that breaks, or whose server refuses writes as a replica, is over after this call. Then the caller
    /// connects again, because the name in a URL may now stand for another server.
    pub(in crate::redis) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        if self.is_replaced() {
            return vec![Err(no_connection(REPLACED)); commands.len()];
        }
        // If the future is dropped before the answer, the connection is checked.
        let unanswered = guard((), |()| self.doubted.notify_one());
        let replies = send(self.multiplexed.clone(), commands).await.into_iter();
        let without_password = |error: CallError| error.without_password(&self.login);
        let replies: Replies = replies
            .map(|reply| reply.map_err(without_password))
            .collect();
        ScopeGuard::into_inner(unanswered);
        self.answered.store(true, Relaxed);
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if errors.any(|error| error.is_disconnect() || error.is_code(&["READONLY"])) {
            self.ended.send_replace(true);
        }
        replies
    }

    /// True if another server has taken the place of this one, so that nothing may be sent over the connection.
    fn is_replaced(&self) -> bool {
        self.tenure.has_changed().is_err()
    }

    /// True if nothing more should be sent over the connection.
    pub(in crate::redis) fn is_over(&self) -> bool {
        *self.ended.borrow() || self.is_replaced()
    }

    /// Ready when the connection has closed. Only one caller at a time may wait.
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

    /// Sends a `PING`, and waits for its reply for as long as other calls are answered. Returns false after a second
    /// without any answer.
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

/// Returns the server's error reply, which redis-rs passes as a value, as an error.
fn checked(value: Value) -> Result<Value, CallError> {
    match value {
        Value::ServerError(error) => Err(CallError::Redis(error.into())),
        value => Ok(value),
    }
}

/// The error of a missing connection, for this reason.
pub(super) fn no_connection(why: &str) -> CallError {
    CallError::unconnected(io::Error::other(why))
}

/// A field of a reply such as that of `INFO`.
pub(in crate::redis) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}
