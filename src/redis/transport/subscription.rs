//! A subscription, over a connection of its own. It is pinged, because it may be silent for long.

use crate::redis::error::{Error, after, by, without_password};
use futures_util::StreamExt;
use redis::{
    Client, Value,
    aio::{PubSubSink, PubSubStream},
};
use std::time::Duration;
use tokio::{
    select,
    time::{interval, timeout},
};

/// How long the connection and the subscription may take together.
const BOUND: Duration = Duration::from_secs(2);

/// How often it is pinged.
const PING: Duration = Duration::from_secs(2);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A subscription to one channel, over a connection of its own.
pub(in crate::redis) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl Subscription {
    pub(super) async fn open(client: &Client, channel: &str) -> Result<Self, Error> {
        let opened = async {
            let subscription = client.get_async_pubsub().await;
            let subscription = subscription.map_err(|error| without_password(error, client));
            let mut subscription = subscription.map_err(Error::unconnected)?;
            let subscribed = subscription.subscribe(channel).await;
            let subscribed = subscribed.map_err(Error::Redis);
            subscribed.map_err(|error| error.without_password(client))?;
            let (sink, messages) = subscription.split();
            Ok(Self { sink, messages })
        };
        by(after(BOUND), Error::Timeout(BOUND), opened).await
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
