//! The permit of a service that is ready, or the acquire of a service that waits.

use crate::{
    observe::events,
    semaphore::{Acquire, AcquireError, Permit},
};
use parking_lot::Mutex;
use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// Unanswered probes in a row after which a gate counts as abandoned. More than one, because a busy
/// runtime may poll the notified task late.
const PROBES: u8 = 3;

/// Wait after which a warning is logged, because the service may wait for its own request's permit.
const LONG: Duration = Duration::from_secs(30);

/// How long a refusal counts as the answer to further polls. After that its cause may be over.
const FRESH: Duration = Duration::from_secs(1);

/// The state of one service between `poll_ready` and `call`. The service's [`Watch`](super::watch::Watch)
/// also reads it, hence the lock.
#[derive(Default)]
pub(super) struct Gate(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    state: State,
    /// The task that waits for the permit, or for the inner service while the permit is held.
    waker: Option<Waker>,
    /// The limit under which the service waits.
    limit: u32,
    /// The begin of the wait, under this limit or an earlier one.
    since: Option<Instant>,
    unanswered: u8,
    /// Whether the long wait was logged.
    is_told: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    Waiting(Acquire),
    Granted(Permit),
    Refused(AcquireError, Instant),
    /// The permit was taken back because the ready service was not used in time.
    Reclaimed,
}

/// The answer of a gate to a call.
pub(super) enum Answer {
    NotReady,
    Granted(Permit),
    /// With the limit of the refusal, which may have changed since.
    Refused(AcquireError, u32),
    /// The permit ended between its grant and the call.
    Lost,
}

impl Gate {
    /// Ready once the answer is known: `true` with a permit. `acquire` is called if no acquire is
    /// pending under this limit and no answer still counts. Its argument is the time that the
    /// service has waited already.
    #[inline]
    pub(super) fn poll(
        &self,
        cx: &mut Context<'_>,
        limit: u32,
        acquire: impl Fn(Duration) -> Acquire,
    ) -> Poll<bool> {
        let mut inner = self.0.lock();
        inner.unanswered = 0;
        if inner.state.is_over() {
            inner.since = None;
            inner.begin(limit, &acquire);
        }
        let waited = matches!(inner.state, State::Waiting(_));
        inner.poll(cx);
        if waited && !inner.fits(limit) {
            inner.begin(limit, &acquire);
            inner.poll(cx);
        }
        match inner.state {
            State::Waiting(_) => Poll::Pending,
            State::Granted(_) => Poll::Ready(true),
            _ => Poll::Ready(false),
        }
    }

    /// The permit that is held.
    pub(super) fn permit(&self) -> Option<Permit> {
        match &self.0.lock().state {
            State::Granted(permit) => Some(permit.clone()),
            _ => None,
        }
    }

    /// Remembers the task, which waits for the inner service with the permit held.
    pub(super) fn wait_for_inner(&self, cx: &Context<'_>) {
        self.0.lock().remember(cx.waker());
    }

    /// Takes the permit or the refusal for one call, and closes the gate.
    pub(super) fn take(&self) -> Answer {
        let mut inner = self.0.lock();
        inner.waker = None;
        match mem::take(&mut inner.state) {
            State::Granted(permit) if !permit.is_lost() => Answer::Granted(permit),
            State::Granted(_) | State::Reclaimed => Answer::Lost,
            State::Refused(error, _) => Answer::Refused(error, inner.limit),
            State::Closed | State::Waiting(_) => Answer::NotReady,
        }
    }

    /// Wakes the waiting task, so that it polls again and proves that it is alive. Closes a gate
    /// after too many unanswered probes. Returns whether there was anything to probe.
    pub(super) fn probe(&self) -> bool {
        let mut inner = self.0.lock();
        if !inner.state.is_holding() {
            return false;
        }
        if inner.unanswered >= PROBES {
            let abandoned = inner.reclaim();
            drop(inner);
            drop(abandoned);
            return true;
        }
        inner.unanswered += 1;
        let waker = inner.waker.clone();
        let is_long = inner.since.is_some_and(|since| since.elapsed() >= LONG)
            && matches!(inner.state, State::Waiting(_))
            && !mem::replace(&mut inner.is_told, true);
        drop(inner);
        if is_long {
            events::waits_long(LONG.as_secs());
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Whether the gate holds a permit or is in the queue.
    pub(super) fn is_holding(&self) -> bool {
        self.0.lock().state.is_holding()
    }
}

impl Inner {
    /// Whether the answer or the wait is also valid under this limit. A permit is, if it had room
    /// under both, so that a limit that keeps changing starves no service.
    #[inline]
    fn fits(&self, limit: u32) -> bool {
        match &self.state {
            State::Waiting(_) => self.limit == limit,
            State::Granted(permit) if self.limit > limit => {
                self.limit.saturating_sub(permit.remaining()) <= limit
            }
            _ => true,
        }
    }

    /// Begins an acquire. Drops the previous one first, which would keep its position in the queue.
    fn begin(&mut self, limit: u32, acquire: impl Fn(Duration) -> Acquire) {
        self.state = State::Closed;
        self.limit = limit;
        let waited = self.since.map(|since| since.elapsed());
        self.since.get_or_insert_with(Instant::now);
        self.state = State::Waiting(acquire(waited.unwrap_or_default()));
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        let State::Waiting(acquire) = &mut self.state else {
            return;
        };
        let Poll::Ready(answer) = Pin::new(acquire).poll(cx) else {
            self.remember(cx.waker());
            return;
        };
        self.state = match answer {
            Ok(permit) => State::Granted(permit),
            Err(error) => State::Refused(error, Instant::now()),
        };
    }

    fn remember(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    fn reclaim(&mut self) -> State {
        self.waker = None;
        let left = match &self.state {
            State::Granted(_) => State::Reclaimed,
            _ => State::Closed,
        };
        mem::replace(&mut self.state, left)
    }
}

impl State {
    /// Whether a poll has to acquire anew.
    fn is_over(&self) -> bool {
        match self {
            Self::Closed | Self::Reclaimed => true,
            Self::Waiting(_) => false,
            Self::Granted(permit) => permit.is_lost(),
            Self::Refused(_, since) => since.elapsed() >= FRESH,
        }
    }

    fn is_holding(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Granted(_))
    }
}
