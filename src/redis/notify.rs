//! Notifies waiters that they were granted.
//!
//! Each store listens on one channel of its own. A message names one permit and its token, so only
//! that permit's waiter wakes, and needs no further call. Messages may be lost, so each waiter also
//! polls at every heartbeat, and whenever the subscription is new.
//!
//! The subscription has a connection of its own, over RESP3 too: BENCHMARKS.md has why.

mod notice;
mod source;
mod waiter;

use super::{error::Error, transport::Transport};
use futures_util::StreamExt;
pub(super) use notice::Notice;
use notice::read;
use parking_lot::Mutex;
use source::{Source, Subscribed};
use std::{
    collections::HashMap,
    convert::Infallible,
    future::pending,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{interval, sleep, timeout},
};
use waiter::Waiter;

/// How long an attempt to subscribe may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The pause between two attempts: the first one, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How often a subscription is pinged, so that a dead one is detected.
const PING: Duration = Duration::from_secs(2);

/// The waiters of this process, and the subscription that carries their messages.
pub(super) struct Notifications {
    waiters: Mutex<Waiters>,
    subscription: watch::Sender<Subscription>,
    source: Source,
    /// Notified when a claim waits, or a permit is held for long, so that the keeper's thread subscribes.
    wanted: Notify,
    /// Whether permits are held for long, which operators may revoke.
    is_wanted: AtomicBool,
    /// Whether messages may have been lost before the subscription that is live now.
    is_new: AtomicBool,
    /// Receives the serials of permits that were revoked.
    revoked: mpsc::UnboundedSender<u64>,
}

#[derive(Default)]
struct Waiters {
    /// Of claims in force, and of those on trial.
    slots: [usize; 2],
    by_serial: HashMap<u64, Arc<Waiter>>,
}

/// The state of the subscription.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Subscription {
    pub(super) live: bool,
}

/// A slot among the waiters of this process; free again when dropped.
pub(super) struct WaiterSlot<'a> {
    notifications: &'a Notifications,
    /// Those of the permits that it waits for.
    serials: Range<u64>,
    is_trial: bool,
    waiter: Arc<Waiter>,
}

impl WaiterSlot<'_> {
    /// Returns the state of the subscription. The first call makes the keeper's thread subscribe.
    pub(super) fn subscribe(&self) -> watch::Receiver<Subscription> {
        self.notifications.wanted.notify_one();
        self.notifications.subscription.subscribe()
    }

    /// Waits for a notification to poll, or of a grant under a token higher than `last`.
    pub(super) async fn granted_after(&self, last: u64) -> Notice {
        self.waiter.granted_after(last).await
    }
}

impl Drop for WaiterSlot<'_> {
    fn drop(&mut self) {
        let mut waiters = self.notifications.waiters.lock();
        waiters.slots[usize::from(self.is_trial)] -= 1;
        let serials = self.serials.clone();
        serials.for_each(|serial| drop(waiters.by_serial.remove(&serial)));
    }
}

impl Notifications {
    /// Over a transport without a publisher no message can arrive, and waiters have to poll.
    ///
    /// Returns also where the serials of revoked permits arrive.
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        prefix: &str,
        process: &str,
    ) -> (Self, mpsc::UnboundedReceiver<u64>) {
        let channel = format!("{prefix}wake:{process}");
        let (revoked, receiver) = mpsc::unbounded_channel();
        let notifications = Self {
            waiters: Mutex::default(),
            subscription: watch::Sender::default(),
            source: Source { transport, channel },
            wanted: Notify::new(),
            is_wanted: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
            revoked,
        };
        (notifications, receiver)
    }

    /// Subscribes from now on, because permits are held that operators may revoke.
    pub(super) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            self.wanted.notify_one();
        }
    }

    /// Whether this process holds permits for long, or has claims that wait.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) || self.waiters.lock().slots != [0, 0]
    }

    /// Whether the subscription has begun since the last call, so that a revocation may have been missed.
    pub(super) fn is_new(&self) -> bool {
        self.is_new.swap(false, Ordering::Relaxed)
    }

    /// Returns a slot for permits of these serials, unless `most` slots are in use by claims like this one.
    pub(super) fn register(
        &self,
        serials: Range<u64>,
        is_trial: bool,
        most: usize,
    ) -> Option<WaiterSlot<'_>> {
        let waiter = Arc::<Waiter>::default();
        let mut waiters = self.waiters.lock();
        let slots = &mut waiters.slots[usize::from(is_trial)];
        if *slots >= most {
            return None;
        }
        *slots += 1;
        let named = serials.clone().map(|serial| (serial, Arc::clone(&waiter)));
        waiters.by_serial.extend(named);
        Some(WaiterSlot {
            notifications: self,
            serials,
            is_trial,
            waiter,
        })
    }

    /// Subscribes until then, to see whether this client may.
    pub(super) async fn check(&self, deadline: Instant) -> Result<(), Error> {
        self.source.check(deadline).await
    }

    /// Subscribes once something waits, and again whenever the subscription ends. Runs on the
    /// keeper's thread, and ends with it.
    pub(super) async fn listen(self: Arc<Self>) -> Infallible {
        let mut pause = PAUSE.0;
        loop {
            // A process of short requests that do not wait needs no subscription.
            while !self.is_wanted() {
                self.wanted.notified().await;
            }
            let Some(publisher) = self.source.transport.publisher() else {
                return pending().await;
            };
            if let Ok(Ok(subscribed)) = timeout(ATTEMPT, self.source.subscribe(publisher)).await {
                let since = Instant::now();
                self.announce(true);
                self.receive(subscribed).await;
                self.announce(false);
                // A subscription that ends at once counts as a failed attempt.
                if since.elapsed() > PAUSE.1 {
                    pause = PAUSE.0;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    fn announce(&self, live: bool) {
        self.is_new.store(live, Ordering::Relaxed);
        self.subscription.send_replace(Subscription { live });
    }

    /// Passes messages on until the connection ends or does not answer any more, or until messages are
    /// published elsewhere.
    async fn receive(&self, (client, mut sink, mut messages): Subscribed) {
        let mut pings = interval(PING);
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => {
                        self.notify(&message.get_payload::<String>().unwrap_or_default());
                    }
                    None => return,
                },
                _ = pings.tick() => {
                    let ping = timeout(ATTEMPT, sink.ping::<redis::Value>()).await;
                    if !matches!(ping, Ok(Ok(_))) || !self.source.transport.is_publisher(&client) {
                        return;
                    }
                }
            }
        }
    }

    /// Wakes the waiter that a message names.
    fn notify(&self, message: &str) {
        let Some((serial, notice)) = read(message) else {
            return;
        };
        if notice.is_revoked() {
            // A dropped receiver is ignored: the keeper has ended, so it holds nothing.
            let _ = self.revoked.send(serial);
        }
        // Not locked below: a waker may drop the claim, which frees its slot.
        let waiter = self.waiters.lock().by_serial.get(&serial).cloned();
        if let Some(waiter) = waiter {
            waiter.notify(notice);
        }
    }
}

#[cfg(test)]
mod tests;
