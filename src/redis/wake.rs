//! How a waiter learns that it was granted.
//!
//! Each process listens on one channel of its own. A message names one permit and its token, so
//! only its waiter wakes, and needs to ask nothing more. Messages may be lost; whoever waits also
//! looks by itself now and then, and whenever the subscription is new.

use futures_util::StreamExt;
use redis::{
    Client, RedisError,
    aio::{PubSubSink, PubSubStream},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{interval, sleep, timeout},
};

/// How long an attempt to subscribe may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a quiet subscription has to show that it lives.
const PING: Duration = Duration::from_secs(2);

/// Those who wait in this process, and where they are told.
pub(super) struct Wakes {
    waiters: Mutex<HashMap<u64, Arc<Waiter>>>,
    subscription: watch::Sender<Subscription>,
    source: Option<Source>,
    task: Mutex<Option<AbortHandle>>,
}

/// The state of what is listened to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Subscription {
    /// How many there have been: a new one means that messages may have been missed.
    number: u64,
    pub(super) live: bool,
}

/// Where to subscribe to what.
struct Source {
    client: Client,
    channel: String,
}

/// One who waits.
#[derive(Default)]
pub(super) struct Waiter {
    /// The token with which it was granted, once it was.
    token: AtomicU64,
    woken: Notify,
}

impl Waiter {
    /// Waits to be told of a grant under a token higher than `last`. A process that was stopped
    /// may hear of an earlier one only after it has ended.
    pub(super) async fn granted_after(&self, last: u64) -> u64 {
        loop {
            self.woken.notified().await;
            let token = self.token.swap(0, Ordering::AcqRel);
            if token > last {
                return token;
            }
        }
    }
}

/// A place among those who wait; given up when dropped.
pub(super) struct Seat<'a> {
    wakes: &'a Wakes,
    serial: u64,
    pub(super) waiter: Arc<Waiter>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.wakes.lock().remove(&self.serial);
    }
}

impl Wakes {
    /// Without a client nobody is told, and all have to look.
    pub(super) fn new(client: Option<Client>, prefix: &str, process: &str) -> Self {
        let channel = format!("{prefix}wake:{process}");
        Self {
            waiters: Mutex::default(),
            subscription: watch::Sender::default(),
            source: client.map(|client| Source { client, channel }),
            task: Mutex::default(),
        }
    }

    /// Takes a seat, unless `most` are taken.
    pub(super) fn sit(&self, serial: u64, most: usize) -> Option<Seat<'_>> {
        let waiter = Arc::<Waiter>::default();
        let mut waiters = self.lock();
        if waiters.len() >= most {
            return None;
        }
        waiters.insert(serial, Arc::clone(&waiter));
        drop(waiters);
        Some(Seat {
            wakes: self,
            serial,
            waiter,
        })
    }

    /// Starts to listen, if there is where to, and nobody does yet. Returns what tells of new
    /// subscriptions.
    pub(super) fn listen(self: &Arc<Self>) -> watch::Receiver<Subscription> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // The runtime in which it ran may be gone.
        let runs = task.as_ref().is_some_and(|task| !task.is_finished());
        if self.source.is_some() && !runs {
            *task = Some(tokio::spawn(listen(Arc::downgrade(self))).abort_handle());
        }
        self.subscription.subscribe()
    }

    fn wake(&self, message: &str) {
        let Some((serial, token)) = message.split_once(' ') else {
            return;
        };
        if let (Ok(serial), Ok(token)) = (u64::from_str_radix(serial, 16), token.parse())
            && let Some(waiter) = self.lock().get(&serial)
        {
            waiter.token.store(token, Ordering::Release);
            waiter.woken.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// Subscribes, again and again, as long as there is a store.
async fn listen(wakes: Weak<Wakes>) {
    while let Some((client, channel)) = source(&wakes) {
        if let Ok(Ok((sink, stream))) = timeout(ATTEMPT, subscribe(client, channel)).await {
            announce(&wakes, true);
            hear(&wakes, sink, stream).await;
            announce(&wakes, false);
        }
        sleep(PAUSE).await;
    }
}

fn source(wakes: &Weak<Wakes>) -> Option<(Client, String)> {
    let wakes = wakes.upgrade()?;
    let source = wakes.source.as_ref()?;
    Some((source.client.clone(), source.channel.clone()))
}

async fn subscribe(
    client: Client,
    channel: String,
) -> Result<(PubSubSink, PubSubStream), RedisError> {
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    Ok(subscription.split())
}

fn announce(wakes: &Weak<Wakes>, live: bool) {
    if let Some(wakes) = wakes.upgrade() {
        wakes.subscription.send_modify(|subscription| {
            subscription.number += u64::from(live);
            subscription.live = live;
        });
    }
}

/// Passes messages on until the connection ends, or does not answer any more.
async fn hear(wakes: &Weak<Wakes>, mut sink: PubSubSink, mut messages: PubSubStream) {
    let mut pings = interval(PING);
    loop {
        tokio::select! {
            message = messages.next() => match (message, wakes.upgrade()) {
                (Some(message), Some(wakes)) => {
                    wakes.wake(&message.get_payload::<String>().unwrap_or_default());
                }
                _ => return,
            },
            _ = pings.tick() => {
                if !matches!(timeout(ATTEMPT, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
