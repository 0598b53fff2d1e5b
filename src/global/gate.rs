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

/// The most probes in a row that a gate may leave unanswered. With more it counts as abandoned. Several, because a busy
/// runtime may poll the notified task late.
const MAX_UNANSWERED: u8 = 3;

/// The wait after which a warning is logged, because the service may wait for its own request's permit.
const LONG_WAIT: Duration = Duration::from_secs(30);

/// How long a refusal counts as the answer to further polls. After that its cause may be over.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(1);

/// The gates of a layer's services and of their clones. A task probes them until none is left.
#[derive(Default)]
pub(super) struct Gates(Mutex<GateRegistry>);

#[derive(Default)]
struct GateRegistry {
    gates: Vec<Weak<Gate>>,
    /// True while a task probes the gates.
    are_probed: bool,
}

/// The state of one service between `poll_ready` and `call`. The probe locks it too.
#[derive(Default)]
pub(super) struct Gate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    phase: GatePhase,
    /// The task that waits for the permit, or for the inner service while the permit is held.
    waker: Option<Waker>,
    /// The start of the wait.
    since: Option<Instant>,
    /// The number of probes since the last poll.
    unanswered: u8,
    /// True once the long wait was logged.
    has_logged_wait: bool,
}

#[derive(Default)]
enum GatePhase {
    #[default]
    Closed,
    Waiting(Acquire),
    Granted(Permit),
    /// With the time of the refusal.
    Refused(AcquireError, Instant),
    /// The permit was taken back because the ready service was not used in time.
    Reclaimed,
}

/// The answer of a gate to a call.
pub(super) enum GateAnswer {
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
        let mut registry = self.0.lock();
        if registry.gates.len() == registry.gates.capacity() {
            // Reserves room for twice the live gates, so that scans stay rare.
            let live = registry.retain();
            registry.gates.reserve(live.max(4));
        }
        registry.gates.push(Arc::downgrade(&gate));
        if !registry.are_probed
            && let Some(runtime) = background::runtime()
        {
            registry.are_probed = true;
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
                // Wakers and stores are user code that may panic, also if the last reference to a gate is dropped here.
                // The panic hook reports the panic.
                contain(move || gate.probe());
            }
        }
    }

    /// The live gates. `None` if no gate is left: then the task ends, and the next gate starts another task.
    fn live(&self) -> Option<Vec<Arc<Gate>>> {
        let mut registry = self.0.lock();
        registry.are_probed = registry.retain() > 0;
        let live = || registry.gates.iter().filter_map(Weak::upgrade).collect();
        registry.are_probed.then(live)
    }
}

impl GateRegistry {
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
        let mut state = self.0.lock();
        state.unanswered = 0;
        if state.phase.is_over() {
            // Drops the earlier permit or refusal before the next acquire.
            state.phase = GatePhase::Closed;
            (state.phase, state.since) = (GatePhase::Waiting(acquire()), Some(Instant::now()));
        }
        state.poll(cx);
        match state.phase {
            GatePhase::Waiting(_) => Poll::Pending,
            GatePhase::Granted(_) => Poll::Ready(true),
            _ => Poll::Ready(false),
        }
    }

    /// Stores the waker of the task, which waits for the inner service while it holds the permit.
    pub(super) fn wait_for_inner(&self, cx: &Context<'_>) {
        self.0.lock().store_waker(cx.waker());
    }

    /// Takes the permit or the refusal for one call, and closes the gate.
    pub(super) fn take(&self) -> GateAnswer {
        let mut state = self.0.lock();
        state.waker = None;
        match mem::take(&mut state.phase) {
            GatePhase::Granted(permit) if !permit.is_lost() => GateAnswer::Granted(permit),
            GatePhase::Granted(_) | GatePhase::Reclaimed => GateAnswer::Lost,
            GatePhase::Refused(error, _) => GateAnswer::Refused(error),
            GatePhase::Closed | GatePhase::Waiting(_) => GateAnswer::NotReady,
        }
    }

    /// Wakes the waiting task, so that it polls again and proves that it is alive. Closes a gate
    /// after too many unanswered probes.
    fn probe(&self) {
        let mut state = self.0.lock();
        let phase_if_abandoned = match state.phase {
            GatePhase::Granted(_) => GatePhase::Reclaimed,
            GatePhase::Waiting(_) => GatePhase::Closed,
            _ => return,
        };
        state.unanswered += 1;
        // The waker and the drop of a permit are user code, which runs without the lock.
        if state.unanswered > MAX_UNANSWERED {
            let old_phase = mem::replace(&mut state.phase, phase_if_abandoned);
            let waker = state.waker.take();
            drop(state);
            drop((old_phase, waker));
        } else {
            let waker = state.waker.clone();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl GateState {
    fn poll(&mut self, cx: &mut Context<'_>) {
        let GatePhase::Waiting(acquire) = &mut self.phase else {
            return;
        };
        match Pin::new(acquire).poll(cx) {
            Poll::Ready(Ok(permit)) => self.phase = GatePhase::Granted(permit),
            Poll::Ready(Err(error)) => self.phase = GatePhase::Refused(error, Instant::now()),
            Poll::Pending => {
                self.store_waker(cx.waker());
                self.log_long_wait();
            }
        }
    }

    fn log_long_wait(&mut self) {
        let is_long = self.since.is_some_and(|since| since.elapsed() >= LONG_WAIT);
        if is_long && !mem::replace(&mut self.has_logged_wait, true) {
            events::waits_long(LONG_WAIT.as_secs());
        }
    }

    fn store_waker(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(stored) => stored.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }
}

impl GatePhase {
    /// True if a poll has to acquire again.
    fn is_over(&self) -> bool {
        match self {
            Self::Closed | Self::Reclaimed => true,
            Self::Waiting(_) => false,
            Self::Granted(permit) => permit.is_lost(),
            Self::Refused(_, since) => since.elapsed() >= REFUSAL_LIFETIME,
        }
    }
}
