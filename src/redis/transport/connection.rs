//! One connection, and whether it is alive; and a subscription.
//!
//! Behind a gateway that swallows packets nothing but silence shows that a connection is dead. So
//! a call that ends without an answer, however soon its caller gave up, is followed by a `PING`.
//! If no answer of any call comes for a second from then on, the connection is dead.
//!
//! A server, or a proxy, that does not know `HELLO` or `AUTH` repeats what it was sent, the password too. Of what it says
//! only the text is changed: the code and the server's own words say what the error means.
//!
//! Nothing is repeated here, and nothing waits for a new connection: a caller that has lost one makes another.

use crate::{
    redis::error::{Error, after, by},
    semaphore::timer,
};
use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value,
    aio::{MultiplexedConnection, PubSubSink, PubSubStream},
    cmd, make_extension_error,
};
use std::{
    io, mem,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    select,
    sync::Notify,
    time::{interval, sleep, timeout},
};

/// How long connecting may take.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// A connection on which nothing was answered for so long is pinged. So its end is known before it is needed.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a subscription is pinged.
const PING: Duration = Duration::from_secs(2);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

/// The server's reply to each command, in their order.
pub(in crate::redis) type Replies = Vec<Result<Value, Error>>;

/// See the module docs. It is driven by the runtime that made it.
pub(super) struct Connection {
    multiplexed: MultiplexedConnection,
    /// Whether an answer has come since the last look at this.
    answered: AtomicBool,
    /// A call has no answer.
    doubted: Notify,
    /// It is of no use for any call.
    ended: Notify,
}

impl Connection {
    /// Makes a connection. Why there is none is explained by an [attempt](super::attempt) only.
    pub(super) async fn open(client: &Client) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let multiplexed = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| without_password(error, client))?;
        Ok(Self {
            multiplexed,
            answered: AtomicBool::new(false),
            doubted: Notify::new(),
            ended: Notify::new(),
        })
    }

    /// Sends commands together, in this order, when it is polled first. As many replies, in their order.
    ///
    /// A broken connection serves no call from then on, and one to a replica none that writes: a name in a URL may
    /// stand for another server by now.
    pub(super) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        let unanswered = Unanswered(self);
        let replies = send(self.multiplexed.clone(), commands).await;
        mem::forget(unanswered);
        self.answered.store(true, Relaxed);
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if errors.any(|error| error.is_disconnect() || error.is_read_only()) {
            self.ended.notify_one();
        }
        replies
    }

    /// Ready when it has closed. For one caller.
    pub(super) async fn closed(&self) {
        loop {
            self.answered.store(false, Relaxed);
            select! {
                () = self.ended.notified() => return,
                () = self.doubted.notified() => {}
                () = sleep(SILENCE) => if self.answered.load(Relaxed) {
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

/// A call that has no answer. Dropped as such, it casts doubt on its connection.
struct Unanswered<'a>(&'a Connection);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.doubted.notify_one();
    }
}

async fn send(mut connection: MultiplexedConnection, commands: Vec<Cmd>) -> Replies {
    let count = commands.len();
    if let [command] = &commands[..] {
        let reply = connection.send_packed_command(command).await;
        return vec![reply.map_err(Error::Redis).and_then(checked)];
    }
    let mut pipeline = Pipeline::with_capacity(count);
    for command in commands {
        pipeline.add_command(command);
    }
    match connection.send_packed_commands(&pipeline, 0, count).await {
        Ok(values) => values.into_iter().map(checked).collect(),
        Err(error) => vec![Err(Error::Redis(error)); count],
    }
}

/// An error that the server sent is an error, not a value.
pub(super) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::Redis(error.into())),
        value => Ok(value),
    }
}

/// The time of a part of connecting is over.
pub(super) fn timed_out() -> Error {
    Error::unconnected(io::Error::from(io::ErrorKind::TimedOut))
}

/// The command that waits for replicas, if any are needed. It travels behind the others, on their connection, so
/// it speaks of the very server that ran them. A replica that acknowledges has applied all that was written before, so
/// a failover to it keeps that.
pub(in crate::redis) fn wait(replicas: u32, bound: Duration) -> Option<Cmd> {
    // Zero would be no bound.
    let bound = bound.as_millis().max(1) as u64;
    (replicas > 0).then(|| cmd("WAIT").arg(replicas).arg(bound).take())
}

/// Takes the reply to [`wait`] away. Unless enough replicas have what was written, no
/// answer counts.
pub(in crate::redis) fn confirmed(mut replies: Replies, replicas: u32) -> Replies {
    if replicas == 0 {
        return replies;
    }
    let error = match replies.pop() {
        Some(Ok(Value::Int(have))) if have >= i64::from(replicas) => return replies,
        Some(Ok(Value::Int(have))) => Error::NotReplicated(have.try_into().unwrap_or_default()),
        // It has become a replica, so it does not wait for replicas.
        Some(Err(error)) if error.is_code(&["UNBLOCKED"]) => Error::NotReplicated(0),
        Some(Err(error)) => error,
        Some(Ok(_)) | None => Error::Reply,
    };
    // An error says more.
    let unconfirmed = replies
        .into_iter()
        .map(|reply| reply.and(Err(error.clone())));
    unconfirmed.collect()
}

/// A subscription to one channel, over a connection of its own.
pub(in crate::redis) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl Subscription {
    pub(in crate::redis) async fn open(client: &Client, channel: &str) -> Result<Self, Error> {
        let opened = async {
            let subscription = client.get_async_pubsub().await;
            let subscription = subscription.map_err(|error| without_password(error, client));
            let mut subscription = subscription.map_err(Error::unconnected)?;
            let subscribed = subscription.subscribe(channel).await;
            subscribed.map_err(Error::Redis)?;
            let (sink, messages) = subscription.split();
            Ok(Self { sink, messages })
        };
        // The connection and the subscription take a round trip each.
        let bound = CONNECT * 2;
        by(after(bound), Error::Timeout(bound), opened).await
    }

    /// Passes messages on until the connection ends or stops answering.
    pub(in crate::redis) async fn receive(mut self, take: impl Fn(&str)) {
        let mut pings = interval(PING);
        loop {
            select! {
                message = self.messages.next() => match message {
                    Some(message) => take(&message.get_payload::<String>().unwrap_or_default()),
                    None => return,
                },
                _ = pings.tick() => {
                    let ping = timeout(ANSWER, self.sink.ping::<Value>()).await;
                    if !matches!(ping, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

/// What a server says of itself. A password that is one of these words is not hidden in them, because
/// a gap would show it.
const SENTENCES: &str = "\
    Authentication required. Password authentication failed, no such user, invalid password. \
    invalid username-password pair or user is disabled. \
    HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
    option can be used to authenticate the client and select the RESP protocol version at the same time. \
    AUTH <password> called without any password configured for the default user. Are you sure your \
    configuration is correct? Client sent AUTH, but no password is set. \
    unsupported protocol version. Protocol error: unauthenticated multibulk bulk length. \
    User has no permissions to run the 'select' command or its subcommand. \
    this user can't run this command. No permissions to access a key, one of the keys, a channel. \
    unknown command, syntax error, wrong number of arguments for 'auth' 'hello' command, unexpected end of input. \
    DB index is out of range, invalid DB index, SELECT is not allowed in cluster mode. \
    max number of clients reached. Redis is running in protected mode. \
    Redis is loading the dataset in memory. Link with MASTER is down. The cluster is down.";

/// The same error without what the server repeats, and without the password.
pub(super) fn without_password(error: RedisError, client: &Client) -> RedisError {
    let password = client.get_connection_info().redis_settings().password();
    let Some(said) = error.detail() else {
        return error;
    };
    let rest = said.split(", with args beginning with").next();
    let told = hidden(rest.unwrap_or_default(), password.unwrap_or_default());
    match error.code() {
        _ if told == said => error,
        Some(code) => make_extension_error(code.to_owned(), Some(told)),
        None => (error.kind(), "the server refuses the connection", told).into(),
    }
}

/// The text without the words that have the secret, unless they are the server's own.
fn hidden(said: &str, secret: &str) -> String {
    let (mut told, mut rest) = (String::new(), said);
    while let Some(at) = rest.find(secret).filter(|_| !secret.is_empty()) {
        let start = rest[..at].rfind(' ').map_or(0, |space| space + 1);
        let end = at + secret.len();
        let end = rest[end..]
            .find(' ')
            .map_or(rest.len(), |space| end + space);
        let is_own = rest[start..end].split(' ').all(is_of_a_server);
        told += &rest[..start];
        told += if is_own { &rest[start..end] } else { "***" };
        rest = &rest[end..];
    }
    told + rest
}

fn is_of_a_server(word: &str) -> bool {
    let bare = |word: &str| word.trim_matches(['.', ',', '?', '\'', '`']).to_lowercase();
    SENTENCES.split(' ').any(|own| bare(own) == bare(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_hidden_unless_it_is_the_servers_own_word() {
        let wrong = "invalid username-password pair or user is disabled.";
        for own in ["password", "user", "a", "is", "name", "-", "r or u", wrong] {
            assert_eq!(hidden(wrong, own), wrong, "{own}");
        }
        for (said, secret, told) in [
            ("unknown command 'x'", "x", "unknown command ***"),
            ("bad 'my horse' or 'my horse'", "my horse", "bad *** or ***"),
            ("User ann has no", "a", "User *** has no"),
            ("sent: password1", "password", "sent: ***"),
            ("sent: käse", "ä", "sent: ***"),
            ("sent: '!!!'", "!!!", "sent: ***"),
            ("sent: ''", "'", "sent: ***"),
            ("nothing", "", "nothing"),
        ] {
            assert_eq!(hidden(said, secret), told);
        }
    }
}
