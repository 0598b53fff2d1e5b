//! One server by its URL, as the [driver](super::super::driver) takes it: a connection that notices its own end,
//! and a subscription.
//!
//! Nothing is repeated here and nobody waits for a new connection: who has lost one makes another.

use super::{
    attempt,
    connection::{Connection, Replies},
    secret::without_password,
};
use crate::{
    redis::error::{CONNECT, Error, after},
    semaphore::timer::timeout_at,
};
use futures_util::StreamExt;
use redis::{
    Client, Cmd,
    aio::{PubSubSink, PubSubStream},
};
use std::{mem, time::Duration};
use tokio::{
    select,
    sync::Notify,
    time::{interval, sleep, timeout},
};

/// A connection on which nothing was answered for so long is pinged. So its end is known before it is needed.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a subscription is pinged.
const PING: Duration = Duration::from_secs(2);

/// How long the answer to a ping may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A connection, driven by the runtime that made it.
pub(in crate::redis) struct Direct {
    connection: Connection,
    /// A call has no answer.
    doubted: Notify,
    /// It is of no use for any call.
    ended: Notify,
}

impl Direct {
    pub(in crate::redis) async fn open(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            connection: attempt::connect(client).await?,
            doubted: Notify::new(),
            ended: Notify::new(),
        })
    }

    /// Sends commands together, in this order, when it is polled first. As many replies, in their order.
    pub(in crate::redis) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        let unanswered = Unanswered(self);
        let replies = self.connection.call(commands).await;
        mem::forget(unanswered);
        self.note(&replies);
        replies
    }

    /// A broken connection serves no call, and one to a replica none that writes: a name in a URL may stand for
    /// another server by now.
    fn note(&self, replies: &Replies) {
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if errors.any(|error| error.is_disconnect() || error.is_read_only()) {
            self.ended.notify_one();
        }
    }

    /// Ready when it is of no use any more. For one caller.
    pub(in crate::redis) async fn closed(&self) {
        loop {
            self.connection.is_answered();
            select! {
                () = self.ended.notified() => return,
                () = self.doubted.notified() => {}
                () = sleep(SILENCE) => if self.connection.is_answered() {
                    continue;
                }
            }
            match self.connection.probe(ANSWER).await {
                Some(replies) => self.note(&replies),
                None => return,
            }
        }
    }
}

/// A call that has no answer. Dropped as such, it casts doubt on its connection.
struct Unanswered<'a>(&'a Direct);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.doubted.notify_one();
    }
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
        let opened = timeout_at(after(bound), opened).await;
        opened.unwrap_or_else(|late| Err(late.or(Error::Timeout(bound))))
    }

    /// Passes messages on until the connection ends, or does not answer any more.
    pub(in crate::redis) async fn receive(mut self, take: impl Fn(&str)) {
        let mut pings = interval(PING);
        loop {
            select! {
                message = self.messages.next() => match message {
                    Some(message) => take(&message.get_payload::<String>().unwrap_or_default()),
                    None => return,
                },
                _ = pings.tick() => {
                    let ping = timeout(ANSWER, self.sink.ping::<redis::Value>()).await;
                    if !matches!(ping, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}
