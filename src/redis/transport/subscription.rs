//! A subscription, over a separate connection. The connection is pinged, because it may be silent for long.

use super::endpoint::{Endpoint, config};
use crate::redis::{
    error::{CallError, deadline_after, finish_by, without_password},
    fault::{Failed, Unfit},
};
use futures_util::{
    StreamExt,
    future::ready,
    stream::{BoxStream, poll_fn},
};
use redis::{
    Client, ErrorKind, Msg, ProtocolVersion, PushKind, RedisConnectionInfo, RedisError,
    RedisResult, Value,
    aio::{MultiplexedConnection, PubSubSink},
    cmd,
};
use std::time::Duration;
use tokio::{
    select,
    sync::mpsc::unbounded_channel,
    time::{interval, timeout},
};

/// How long the connection and the subscription may take together.
const BOUND: Duration = Duration::from_secs(2);

/// The interval between pings.
const PING: Duration = Duration::from_secs(2);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A subscription to one channel, over a separate connection.
pub(in crate::redis) struct Subscription {
    connection: SubscribedConnection,
    messages: BoxStream<'static, Msg>,
}

/// A connection with a subscription.
enum SubscribedConnection {
    /// redis-rs has made it. It needs no `HELLO`, which a proxy may not know.
    Own(PubSubSink),
    /// A user's connector has made it. Its messages come over RESP3 only.
    Supplied(MultiplexedConnection),
}

impl SubscribedConnection {
    async fn ping(&mut self) -> RedisResult<Value> {
        match self {
            Self::Own(sink) => sink.ping().await,
            Self::Supplied(connection) => cmd("PING").query_async(connection).await,
        }
    }
}

impl Subscription {
    pub(super) async fn open(endpoint: &Endpoint, channel: &str) -> Result<Self, CallError> {
        let opened = async {
            let login = endpoint.login().await.map_err(CallError::unconnected)?;
            match endpoint.is_supplied() {
                true => Self::open_supplied(endpoint, &login, channel).await,
                false => Self::open_own(endpoint, &login, channel).await,
            }
        };
        finish_by(deadline_after(BOUND), CallError::Timeout(BOUND), opened).await
    }

    async fn open_own(
        endpoint: &Endpoint,
        login: &RedisConnectionInfo,
        channel: &str,
    ) -> Result<Self, CallError> {
        let info = endpoint.info().clone().set_redis_settings(login.clone());
        let connected = async { Client::open(info)?.get_async_pubsub().await };
        let mut connection = connected.await.map_err(|error| refused(error, login))?;
        let subscribed = connection.subscribe(channel).await;
        subscribed.map_err(|error| CallError::Redis(error).without_password(login))?;
        let (sink, messages) = connection.split();
        Ok(Self {
            connection: SubscribedConnection::Own(sink),
            messages: messages.boxed(),
        })
    }

    async fn open_supplied(
        endpoint: &Endpoint,
        login: &RedisConnectionInfo,
        channel: &str,
    ) -> Result<Self, CallError> {
        // Messages are push frames only over RESP3.
        let settings = login.clone().set_protocol(ProtocolVersion::RESP3);
        let (sender, mut pushes) = unbounded_channel();
        let connected = endpoint.connect(settings, config().set_push_sender(sender));
        // With RESP2, redis-rs rejects a push sender and a subscription. That shows that a connector has ignored the
        // protocol of these settings.
        let is_wrong_connector = |error: &RedisError| {
            let cause = Failed::find_in(error).and_then(Failed::redis_error);
            cause.unwrap_or(error).kind() == ErrorKind::InvalidClientConfig
        };
        let mut connection = connected
            .await
            .map_err(|error| match is_wrong_connector(&error) {
                true => CallError::unconnected(Unfit::WrongConnector),
                false => refused(error, login),
            })?;
        let subscribed = connection.subscribe(channel).await;
        subscribed.map_err(|error| match is_wrong_connector(&error) {
            true => CallError::unconnected(Unfit::WrongConnector),
            false => CallError::Redis(error).without_password(login),
        })?;
        // The first push confirms the subscription, and comes before `subscribe` returns.
        if pushes.try_recv().is_err() {
            return Err(CallError::unconnected(Unfit::WrongConnector));
        }
        let pushes = poll_fn(move |context| pushes.poll_recv(context));
        let pushes = pushes.take_while(|push| ready(push.kind != PushKind::Disconnection));
        let messages = pushes.filter_map(|push| ready(Msg::from_push_info(push)));
        Ok(Self {
            connection: SubscribedConnection::Supplied(connection),
            messages: messages.boxed(),
        })
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
                    let ping = timeout(ANSWER, self.connection.ping());
                    if !matches!(ping.await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

/// The error of an attempt to connect, which may be an answer of the server.
fn refused(error: RedisError, login: &RedisConnectionInfo) -> CallError {
    let error = without_password(error, login);
    match error.code() {
        Some(_) => CallError::Redis(error),
        None => CallError::unconnected(error),
    }
}
