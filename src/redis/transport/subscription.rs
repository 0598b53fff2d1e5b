//! A subscription, over a separate connection. It is pinged, because it may be silent for long.

use super::{
    attempt::{Unfit, config},
    endpoint::Endpoint,
};
use crate::redis::error::{Error, after, by, without_password};
use redis::{
    ErrorKind, Msg, ProtocolVersion, PushInfo, PushKind, Value, aio::MultiplexedConnection, cmd,
};
use std::time::Duration;
use tokio::{
    select,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{interval, timeout},
};

/// How long the connection and the subscription may take together.
const BOUND: Duration = Duration::from_secs(2);

/// How often it is pinged.
const PING: Duration = Duration::from_secs(2);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A subscription to one channel, over a separate connection.
pub(in crate::redis) struct Subscription {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Subscription {
    pub(super) async fn open(endpoint: &Endpoint, channel: &str) -> Result<Self, Error> {
        let opened = async {
            let login = endpoint.login().await.map_err(Error::unconnected)?;
            // Messages over RESP2 are no pushes.
            let settings = login.clone().set_protocol(ProtocolVersion::RESP3);
            let (sender, mut pushes) = unbounded_channel();
            let connection = endpoint.connect(settings, config().set_push_sender(sender));
            let connection = connection.await.map_err(|error| match error.kind() {
                // redis-rs refuses to combine them.
                ErrorKind::InvalidClientConfig if endpoint.is_supplied() => {
                    Unfit::WrongConnector.into()
                }
                _ => without_password(error, &login),
            });
            let mut connection = connection.map_err(|error| match error.code() {
                Some(_) => Error::Redis(error),
                None => Error::unconnected(error),
            })?;
            let subscribed = connection.subscribe(channel).await.map_err(Error::Redis);
            subscribed.map_err(|error| error.without_password(&login))?;
            // The confirmation is the first one, and comes before `subscribe` returns.
            match pushes.try_recv() {
                Ok(_) => Ok(Self { connection, pushes }),
                Err(_) => Err(Error::unconnected(Unfit::WrongConnector)),
            }
        };
        by(after(BOUND), Error::Timeout(BOUND), opened).await
    }

    /// Passes messages on until the connection ends or stops answering.
    pub(in crate::redis) async fn receive(mut self, take: impl Fn(&str)) {
        let mut pings = interval(PING);
        loop {
            select! {
                push = self.pushes.recv() => match push {
                    None | Some(PushInfo { kind: PushKind::Disconnection, .. }) => return,
                    Some(push) => if let Some(message) = Msg::from_push_info(push) {
                        take(&message.get_payload::<String>().unwrap_or_default());
                    },
                },
                _ = pings.tick() => {
                    let ping = cmd("PING");
                    let ping = timeout(ANSWER, ping.query_async::<Value>(&mut self.connection));
                    if !matches!(ping.await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}
