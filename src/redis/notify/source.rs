//! Where messages come from.

use crate::{
    redis::{
        clock::after,
        error::Error,
        transport::{Transport, without_password},
    },
    semaphore::timer::timeout_at,
};
use redis::{
    Client,
    aio::{PubSubSink, PubSubStream},
};
use std::{sync::Arc, time::Instant};

/// At how many of several servers a check tries to subscribe.
const FEW: u32 = 3;

/// A subscription, and the server that it is on.
pub(super) type Subscribed = (Client, PubSubSink, PubSubStream);

/// Where messages come from.
pub(in crate::redis) struct Source {
    pub(in crate::redis) transport: Arc<dyn Transport>,
    pub(in crate::redis) channel: String,
}

impl Source {
    pub(super) async fn subscribe(
        &self,
        publisher: impl Future<Output = Result<Client, Error>>,
    ) -> Result<Subscribed, Error> {
        let client = publisher.await?;
        let subscription = client.get_async_pubsub().await;
        let subscription = subscription.map_err(|error| without_password(error, &client));
        let mut subscription = subscription.map_err(Error::unconnected)?;
        let subscribed = subscription.subscribe(&self.channel).await;
        subscribed.map_err(Error::Redis)?;
        let (sink, messages) = subscription.split();
        Ok((client, sink, messages))
    }

    /// Subscribes until then, to see whether this client may. Where there are several servers it is enough
    /// that one of a few answers: messages come through any of them.
    pub(in crate::redis) async fn check(&self, deadline: Instant) -> Result<(), Error> {
        let attempts = if self.transport.is_one_server() {
            1
        } else {
            FEW
        };
        let mut checked = Ok(());
        for left in (1..=attempts).rev() {
            let Some(publisher) = self.transport.publisher() else {
                return Ok(());
            };
            let time = deadline.saturating_duration_since(Instant::now()) / left;
            let subscribed = timeout_at(after(time), self.subscribe(publisher)).await;
            let subscribed = subscribed.unwrap_or_else(|late| Err(late.or(Error::Timeout(time))));
            checked = subscribed.map(drop);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }
}
