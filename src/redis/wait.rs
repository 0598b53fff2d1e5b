//! The way of a claim that may wait: from a position in the queue to a grant.

use super::{
    clock::{Times, after},
    dispatch::{Claim, Dispatch, Level},
    error::Error,
    lease::Lease,
    notify::{Notice, Subscription, WaiterSlot},
    protocol::{Acquired, Position},
};
use crate::{
    observe::{Outcome::Unavailable, Waiting},
    semaphore::{AcquireError, StoreError, Wait, timer::sleep_until},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How often the head of the queue polls, and how often the others, while no message can reach
/// them.
const WITHOUT_MESSAGES: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(250));

/// The pause after a poll that failed.
const RETRY: Duration = Duration::from_millis(20);

/// A lease that is wanted, and how it waits; `None` if it does not.
pub(super) type Wanted = (Arc<Lease>, Option<Wait>);

/// Acquires all of these, from the narrowest limit to the widest, waiting in one queue after the
/// other until all are granted or the wait for one is over.
pub(super) async fn granted(
    dispatch: &Dispatch,
    times: Times,
    wanted: &[Wanted],
    slot: WaiterSlot<'_>,
) -> Result<Acquired, AcquireError> {
    let now = Instant::now();
    let levels = wanted.iter().map(|(lease, wait)| WaitingLevel {
        lease: Arc::clone(lease),
        end: wait.map_or(now, |wait| after(wait.time)),
        position: Position {
            alive: times.alive(),
            max_waiting: wait.map_or(0, |wait| wait.max_waiting),
            arrival: 0,
            head_start: wait.map_or(Duration::ZERO, |wait| wait.head_start),
        },
    });
    let mut waiter = Waiter {
        dispatch,
        times,
        levels: levels.collect(),
        at: 0,
        subscription: slot.subscribe(),
        slot,
        last_token: 0,
        polled: now,
        polls: 0,
        failing_since: None,
        waiting: Waiting::default(),
    };
    let answer = waiter.granted().await;
    let outcome = |answer: &Acquired| answer.outcome(waiter.at);
    let outcome = answer.as_ref().map_or(Unavailable, outcome);
    waiter.waiting.leave(outcome);
    answer
}

/// A claim in the queue.
struct Waiter<'a> {
    dispatch: &'a Dispatch,
    times: Times,
    levels: Vec<WaitingLevel>,
    /// The level whose queue it is in.
    at: usize,
    subscription: watch::Receiver<Subscription>,
    slot: WaiterSlot<'a>,
    /// The semaphore's last token at the last poll: a message whose token is not higher is out of
    /// date.
    last_token: u64,
    /// When the last answered poll was sent: the last heartbeat.
    polled: Instant,
    polls: u32,
    failing_since: Option<Instant>,
    waiting: Waiting,
}

struct WaitingLevel {
    lease: Arc<Lease>,
    /// When its wait is over.
    end: Instant,
    position: Position,
}

/// The outcome of a poll.
enum Polled {
    Answered(Acquired),
    /// The claim waits. Its next poll is due then.
    Again(Instant),
}

/// Why a waiter wakes.
enum Wake {
    /// A message says that the claim was granted.
    Notified(Notice),
    /// It is time to poll.
    Poll,
    /// An operator has revoked the claim.
    Revoked,
}

impl Waiter<'_> {
    /// Polls and waits in turn, until the claim is granted or refused.
    async fn granted(&mut self) -> Result<Acquired, AcquireError> {
        loop {
            // The wait bounds the time in the queue, not the time of a call: the server is polled
            // once, however short the wait is.
            let next = match self.poll().await? {
                Polled::Answered(answer) => return Ok(answer),
                Polled::Again(at) => at,
            };
            let accepted = match self.wake(next.min(self.end())).await {
                Wake::Notified(notice) => self.accept(&notice),
                Wake::Poll => None,
                Wake::Revoked => return Ok(Acquired::Revoked),
            };
            if let Some(answer) = accepted {
                return Ok(answer);
            }
        }
    }

    /// When the wait in the present queue is over.
    fn end(&self) -> Instant {
        self.levels[self.at].end
    }

    /// Polls the server, which counts as a heartbeat. Where the wait is over it acquires what there
    /// is, or leaves the queue: only an answer shows whether the limit was reached all the time.
    async fn poll(&mut self) -> Result<Polled, AcquireError> {
        let sent = Instant::now();
        let has_messages = self.subscription.borrow_and_update().live;
        match self.dispatch.acquire(self.claim(sent)).await {
            Ok(Acquired::Queued {
                level,
                arrival,
                recheck,
                last_token,
            }) => {
                self.levels[level].position.arrival = arrival;
                self.levels[level].lease.waits(&mut self.waiting);
                (self.at, self.last_token) = (level, last_token);
                (self.polled, self.failing_since) = (sent, None);
                self.polls += 1;
                Ok(Polled::Again(sent + self.pause(recheck, has_messages)))
            }
            Ok(answer) => Ok(Polled::Answered(answer)),
            Err(error) => self.failed(sent, error).map(Polled::Again),
        }
    }

    fn claim(&self, now: Instant) -> Claim {
        let levels = self.levels.iter().map(|level| Level {
            lease: Arc::clone(&level.lease),
            position: (now < level.end).then_some(level.position),
        });
        Claim {
            levels: levels.collect(),
            deadline: now.min(self.end()) + self.times.budget(),
        }
    }

    /// A poll has failed. A waiter that is in the queue already polls again for as long as a claim's
    /// budget, so that neither a broken connection nor a server that cannot work for a moment costs the
    /// waiter its position.
    fn failed(&mut self, sent: Instant, error: Error) -> Result<Instant, AcquireError> {
        let since = *self.failing_since.get_or_insert(sent);
        let is_queued = self.levels[self.at].position.arrival > 0;
        if is_queued
            && sent < self.end()
            && (error.is_transient() || error.is_unavailable())
            && since.elapsed() < self.times.budget()
        {
            return Ok(Instant::now() + RETRY);
        }
        Err(StoreError::new(error).into())
    }

    /// Waits for a message, for a new subscription, or for the next poll.
    async fn wake(&mut self, next: Instant) -> Wake {
        tokio::select! {
            notice = self.slot.granted_after(self.last_token) => match notice.token {
                _ if notice.is_revoked() => Wake::Revoked,
                0 => Wake::Poll,
                _ => Wake::Notified(notice),
            },
            () = resubscribed(&mut self.subscription) => Wake::Poll,
            () = sleep_until(next) => Wake::Poll,
        }
    }

    /// Accepts a notification if its grant cannot have ended since. Such a grant lasts as long as the
    /// waiter counts as alive, so its deadline counts from the last heartbeat. Of several levels it is
    /// the grant of one, so the waiter has to poll for the others.
    fn accept(&self, notice: &Notice) -> Option<Acquired> {
        // Replicas may not have that grant yet.
        if self.dispatch.attempts().protocol.is_confirmed() {
            return None;
        }
        let [level] = &self.levels[..] else {
            return None;
        };
        let deadline = self.times.provisional_until(self.polled);
        let Notice { token, held } = *notice;
        let is_granted = self.times.now() < deadline && level.lease.notified(token, deadline);
        is_granted.then(|| Acquired::Granted(vec![(token, held)]))
    }

    /// How long until the next poll: a heartbeat interval, less for the head of the queue if a lease
    /// ends before. The interval varies by a quarter, so that waiters that arrived together do not
    /// poll together.
    fn pause(&self, recheck: Option<Duration>, has_messages: bool) -> Duration {
        let regular = self.times.heartbeat_interval();
        let regular = match (has_messages, recheck) {
            (true, _) => regular,
            (false, Some(_)) => regular.min(WITHOUT_MESSAGES.0),
            (false, None) => regular.min(WITHOUT_MESSAGES.1),
        };
        let serial = self.levels[0].lease.serial;
        let spread = serial.wrapping_add(u64::from(self.polls)) % 16;
        let regular = regular - regular / 64 * spread as u32;
        // A millisecond later, because a lease counts as live in the millisecond of its end.
        let earliest = recheck.map(|recheck| recheck + Duration::from_millis(1));
        earliest.map_or(regular, |earliest| earliest.min(regular))
    }
}

/// Waits for a new subscription. Messages may have been lost before it.
async fn resubscribed(subscription: &mut watch::Receiver<Subscription>) {
    while subscription.changed().await.is_ok() {
        if subscription.borrow_and_update().live {
            return;
        }
    }
    std::future::pending::<()>().await;
}
