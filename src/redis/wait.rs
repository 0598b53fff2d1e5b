//! The way from a claim to a grant, with a place in the line in between.

use super::{
    Store,
    answer::Answer,
    lease::Lease,
    script::Place,
    wake::{Seat, Subscription},
};
use crate::semaphore::{AcquireError, Wait};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{Instant as TokioInstant, sleep_until, timeout_at},
};

/// How often the head of the line looks, and how often the others, while no message can reach
/// them.
const UNTOLD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

impl Store {
    /// Asks, and waits in the line until it is granted or the wait is over. Returns how much is
    /// held.
    pub(super) async fn wait(
        &self,
        lease: &Arc<Lease>,
        wait: Wait,
    ) -> Result<Answer, AcquireError> {
        let end = far(Instant::now(), wait.time);
        let seat = self.wakes.sit(lease.serial, self.max_waiting);
        let seat = seat.ok_or(AcquireError::Overloaded)?;
        let mut waiting = Waiting {
            store: self,
            lease,
            subscription: self.wakes.listen(),
            seat,
            place: Place {
                alive: self.core.times.alive(),
                longest: wait.max_waiting,
                ticket: 0,
            },
            last: 0,
            looked: Instant::now(),
            looks: 0,
        };
        // The wait is for others, not for the server: that one is asked once in any case.
        match waiting.look().await? {
            Looked::Answered(answer) => Ok(answer),
            Looked::Again(at) => match timeout_at(end, waiting.granted(at)).await {
                Ok(answer) => answer,
                Err(_) => Err(AcquireError::TimedOut),
            },
        }
    }
}

/// A moment that far away; one that is too far to be told is as good as one in a year.
fn far(from: Instant, time: Duration) -> TokioInstant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    (from + time.min(YEAR)).into()
}

/// A claim in the line.
struct Waiting<'a> {
    store: &'a Store,
    lease: &'a Arc<Lease>,
    subscription: watch::Receiver<Subscription>,
    seat: Seat<'a>,
    place: Place,
    /// The last token when it looked: a message that names one no higher is out of date.
    last: u64,
    looked: Instant,
    looks: u32,
}

/// What comes of looking.
enum Looked {
    Answered(Answer),
    /// It waits, and should ask again then.
    Again(Instant),
}

/// Why a waiter stops waiting for a while.
enum Woken {
    /// It is granted, says a message.
    Granted(u64),
    /// It should look.
    Look,
}

impl Waiting<'_> {
    /// Asks the server.
    async fn look(&mut self) -> Result<Looked, AcquireError> {
        self.looked = Instant::now();
        let live = self.subscription.borrow_and_update().live;
        match self.store.ask(self.lease, Some(self.place)).await? {
            Answer::Waiting { place, look, last } => {
                self.place.ticket = place;
                self.last = last;
                self.looks += 1;
                Ok(Looked::Again(self.looked + self.pause(look, live)))
            }
            answer => Ok(Looked::Answered(answer)),
        }
    }

    /// Waits and looks in turn, until there is an answer other than to wait.
    async fn granted(&mut self, mut at: Instant) -> Result<Answer, AcquireError> {
        loop {
            if let Woken::Granted(token) = self.woken(at).await
                && let Some(answer) = self.believe(token)
            {
                return Ok(answer);
            }
            match self.look().await? {
                Looked::Answered(answer) => return Ok(answer),
                Looked::Again(later) => at = later,
            }
        }
    }

    /// Waits for a message, for a new subscription, or for the next look.
    async fn woken(&mut self, look: Instant) -> Woken {
        tokio::select! {
            token = self.seat.waiter.granted_after(self.last) => Woken::Granted(token),
            () = renewed(&mut self.subscription) => Woken::Look,
            () = sleep_until(look.into()) => Woken::Look,
        }
    }

    /// What a message says is true if the grant cannot have ended since. It lasts as long as the
    /// waiter counts as alive, so the last look is what the deadline counts from.
    fn believe(&self, token: u64) -> Option<Answer> {
        let times = &self.store.core.times;
        let deadline = times.hasty_deadline(self.looked);
        if times.now() >= deadline {
            return None;
        }
        self.lease.granted_hastily(token, deadline);
        let held = self.lease.units.limit;
        Some(Answer::Granted { token, held })
    }

    /// When to look again: now and then, and when the earliest lease ends for the head. Spread
    /// out by a quarter, so that those who came together do not look together.
    fn pause(&self, look: Option<Duration>, live: bool) -> Duration {
        let regular = self.store.core.times.look();
        let regular = match (live, look) {
            (true, _) => regular,
            (false, Some(_)) => regular.min(UNTOLD.0),
            (false, None) => regular.min(UNTOLD.1),
        };
        let spread = self.lease.serial.wrapping_add(u64::from(self.looks)) % 16;
        let regular = regular - regular / 64 * spread as u32;
        // A millisecond later, because a lease counts as live in the millisecond of its end.
        let earliest = look.map(|look| look + Duration::from_millis(1));
        earliest.map_or(regular, |earliest| earliest.min(regular))
    }
}

/// A subscription that is new may have missed what was said before it.
async fn renewed(subscription: &mut watch::Receiver<Subscription>) {
    while subscription.changed().await.is_ok() {
        if subscription.borrow_and_update().live {
            return;
        }
    }
    std::future::pending::<()>().await;
}
