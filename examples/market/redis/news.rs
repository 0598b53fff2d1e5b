//! The events of all processes, through one subscription per process.

use super::{keys, message::Message, server::Server};
use crate::market::Event;
use futures_util::StreamExt;
use redis::{
    Msg, RedisResult,
    aio::{PubSubSink, PubSubStream},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::broadcast::Sender,
    time::{sleep, timeout},
};

/// After this time without an event, the connection must answer a ping.
const SILENCE: Duration = Duration::from_secs(5);

/// The longest time for a command to Redis.
const BUDGET: Duration = Duration::from_secs(1);

/// The time to wait before another attempt to subscribe.
const PAUSE: Duration = Duration::from_millis(200);

/// A subscription, which ends when its sink is dropped.
pub(super) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

/// Subscribes to events from now on.
pub(super) async fn subscribe(server: &Server) -> RedisResult<Subscription> {
    let client = server.find().await?;
    let (mut sink, messages) = client.get_async_pubsub().await?.split();
    sink.subscribe(keys::EVENTS).await?;
    Ok(Subscription { sink, messages })
}

/// Forwards events, and subscribes again when the connection breaks. Events in between are lost.
pub(super) async fn pass_on(server: Arc<Server>, mut news: Subscription, events: Sender<Event>) {
    loop {
        while let Some(message) = news.next().await {
            if let Ok(message) = serde_json::from_slice::<Message>(message.get_payload_bytes()) {
                // Sending fails only if no subscriber exists.
                let _ = events.send(message.into());
            }
        }
        news = subscribe_again(&server).await;
    }
}

async fn subscribe_again(server: &Server) -> Subscription {
    loop {
        if let Ok(Ok(news)) = timeout(BUDGET, subscribe(server)).await {
            return news;
        }
        sleep(PAUSE).await;
    }
}

impl Subscription {
    /// The next message, or `None` if the connection is broken.
    async fn next(&mut self) -> Option<Msg> {
        loop {
            match timeout(SILENCE, self.messages.next()).await {
                Ok(message) => return message,
                Err(_) => self.probe().await?,
            }
        }
    }

    /// Returns `None` if the connection does not answer a ping.
    async fn probe(&mut self) -> Option<()> {
        timeout(BUDGET, self.sink.ping::<()>()).await.ok()?.ok()
    }
}
