//! The permit of a service that is ready, or the acquire of a service that waits.
//!
//! Tower does not notify a service when its caller has lost interest: `load_shed` forgets a service that was not ready,
//! and a connection pool keeps idle services. So a background task probes all gates of a layer about once a second.

use crate::{
    background,
    observe::{contain, events},
    semaphore::{Acquire, AcquireError, Permit},
};
use parking_lot::Mutex;
use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Time between two probes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Unanswered probes in a row after which a gate counts as abandoned. More than one, because a busy
/// runtime may poll the notified task late.
const PROBES: u8 = 3;

/// The wait after which a warning is logged, because the service may wait for its own request's permit.
const LONG: Duration = Duration::from_secs(30);

/// How long a refusal counts as the answer to further polls. After that its cause may be over.
const FRESH: Duration = Duration::from_secs(1);

/// The gates of a layer's services and of their clones. A task probes them until none is left.
#[derive(Default)]
pub(super) struct Gates(Mutex<Known>);

#[derive(Default)]
struct Known {
    gates: Vec<Weak<Gate>>,
    are_probed: bool,
}

/// The state of one service between `poll_ready` and `call`. The probe locks it too.
#[derive(Default)]
pub(super) struct Gate(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    state: State,
    /// The task that waits for the permit, or for the inner service while the permit is held.
    waker: Option<Waker>,
    /// The start of the wait.
    since: Option<Instant>,
    unanswered: u8,
    /// True once the long wait was logged.
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
    Refused(AcquireError),
    /// The permit ended between its grant and the call.
    Lost,
}

impl Gates {
    /// A gate that is probed from now on, for as long as it exists.
    pub(super) fn open(self: &Arc<Self>) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let mut known = self.0.lock();
        if known.gates.len() == known.gates.capacity() {
            // Reserves room for twice the live gates, so that scans stay rare.
            let live = known.retain();
            known.gates.reserve(live.max(4));
        }
        known.gates.push(Arc::downgrade(&gate));
        if !known.are_probed
            && let Some(runtime) = background::runtime()
        {
            known.are_probed = true;
            runtime.spawn(Self::probe(Arc::downgrade(self)));
        }
        gate
    }

    /// Probes all gates about once a second, until none is left.
    async fn probe(gates: Weak<Self>) {
        loop {
            sleep(INTERVAL).await;
            let Some(live) = gates.upgrade().and_then(|gates| gates.live()) else {
                return;
            };
            for gate in live {
                // Wakers and stores are user code, also where the last reference to a gate is dropped here. The panic
                // hook has reported a panic.
                contain(move || gate.probe());
            }
        }
    }

    /// The live gates. `None` if no gate is left: the task ends, and the next gate starts another one.
    fn live(&self) -> Option<Vec<Arc<Gate>>> {
        let mut known = self.0.lock();
        known.are_probed = known.retain() > 0;
        let live = || known.gates.iter().filter_map(Weak::upgrade).collect();
        known.are_probed.then(live)
    }
}

impl Known {
    /// Removes the gates that were dropped. Returns the number of the others.
    fn retain(&mut self) -> usize {
        self.gates.retain(|gate| gate.strong_count() > 0);
        self.gates.len()
    }
}

impl Gate {
    /// Ready once the answer is known: true for a permit, false for a refusal. Calls `acquire` if no acquire is pending
    /// and no earlier answer is still valid.
    #[inline]
    pub(super) fn poll(
        &self,
        cx: &mut Context<'_>,
        acquire: impl FnOnce() -> Acquire,
    ) -> Poll<bool> {
        let mut inner = self.0.lock();
        inner.unanswered = 0;
        if inner.state.is_over() {
            // Drops the earlier permit or refusal before the next acquire.
            inner.state = State::Closed;
            (inner.state, inner.since) = (State::Waiting(acquire()), Some(Instant::now()));
        }
        inner.poll(cx);
        match inner.state {
            State::Waiting(_) => Poll::Pending,
            State::Granted(_) => Poll::Ready(true),
            _ => Poll::Ready(false),
        }
    }

    /// Stores the waker of the task, which waits for the inner service while it holds the permit.
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
            State::Refused(error, _) => Answer::Refused(error),
            State::Closed | State::Waiting(_) => Answer::NotReady,
        }
    }

    /// Wakes the waiting task, so that it polls again and proves that it is alive. Closes a gate
    /// after too many unanswered probes.
    fn probe(&self) {
        let mut inner = self.0.lock();
        let left = match inner.state {
            State::Granted(_) => State::Reclaimed,
            State::Waiting(_) => State::Closed,
            _ => return,
        };
        inner.unanswered += 1;
        let is_abandoned = inner.unanswered > PROBES;
        let (waker, abandoned) = match is_abandoned {
            true => (inner.waker.take(), mem::replace(&mut inner.state, left)),
            false => (inner.waker.clone(), State::Closed),
        };
        // Without the lock, because the waker and the drop of a permit are user code.
        drop(inner);
        drop(abandoned);
        waker
            .filter(|_| !is_abandoned)
            .into_iter()
            .for_each(Waker::wake);
    }
}

impl Inner {
    fn poll(&mut self, cx: &mut Context<'_>) {
        let State::Waiting(acquire) = &mut self.state else {
            return;
        };
        match Pin::new(acquire).poll(cx) {
            Poll::Ready(Ok(permit)) => self.state = State::Granted(permit),
            Poll::Ready(Err(error)) => self.state = State::Refused(error, Instant::now()),
            Poll::Pending => {
                self.remember(cx.waker());
                self.tell_long();
            }
        }
    }

    fn tell_long(&mut self) {
        let is_long = self.since.is_some_and(|since| since.elapsed() >= LONG);
        if is_long && !mem::replace(&mut self.is_told, true) {
            events::waits_long(LONG.as_secs());
        }
    }

    fn remember(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }
}

impl State {
    /// True if a poll has to acquire again.
    fn is_over(&self) -> bool {
        match self {
            Self::Closed | Self::Reclaimed => true,
            Self::Waiting(_) => false,
            Self::Granted(permit) => permit.is_lost(),
            Self::Refused(_, since) => since.elapsed() >= FRESH,
        }
    }
}
