//! Finds gates of services that are kept but no longer used.
//!
//! Tower does not report to a service that its caller has lost interest: `load_shed` forgets a
//! service that was not ready, a connection pool keeps one that is idle. So while a gate holds a
//! permit or is in the queue, one task for all services of a layer probes it about each second.

use super::gate::Gate;
use crate::semaphore::background;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

const INTERVAL: Duration = Duration::from_secs(1);

/// Time after the last probe when another task takes over: the first task's runtime may be alive
/// but not driven, or have no time enabled.
const OVERDUE: Duration = Duration::from_secs(3);

/// The value of `prober` while no task probes.
const NOBODY: u64 = 0;

/// The gates of a layer's services and of their clones.
#[derive(Default)]
pub(super) struct Watch {
    gates: Mutex<Vec<Weak<Gate>>>,
    /// The number of the task that probes.
    prober: AtomicU64,
    last_number: AtomicU64,
    /// The number of times that the background took over from a task whose runtime had ended.
    reliefs: AtomicU64,
    /// The time of the last probe, or of the last start of a probing task.
    probed: Mutex<Option<Instant>>,
}

impl Watch {
    /// A gate that is probed from now on, for as long as it exists.
    pub(super) fn gate(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let mut gates = self.gates.lock();
        if gates.len() == gates.capacity() {
            gates.retain(|gate| gate.strong_count() > 0);
            // Capacity for as many more, so that a scan stays rare.
            let live = gates.len();
            gates.reserve(live.max(4));
        }
        gates.push(Arc::downgrade(&gate));
        gate
    }

    /// Starts probing, unless a task does so already or there is no Tokio runtime. Checks that the
    /// task still probes only for a service that `waits`.
    #[inline]
    pub(super) fn start(self: &Arc<Self>, waits: bool) {
        let prober = self.prober.load(Ordering::Relaxed);
        if prober == NOBODY || waits && self.is_overdue() {
            self.spawn(prober);
        }
    }

    #[cold]
    fn spawn(self: &Arc<Self>, replaced: u64) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        if self.hand_over(replaced, number) {
            *self.probed.lock() = Some(Instant::now());
            runtime.spawn(Probing::new(self, number).run());
        }
    }

    /// Probes in the background until a task probes again. A poll starts such a task, but without
    /// probes nothing would wake a service that waits, so its poll cannot be relied on.
    #[cold]
    fn relieve(self: &Arc<Self>) {
        let number = self.reliefs.fetch_add(1, Ordering::AcqRel) + 1;
        let watch = Arc::downgrade(self);
        let relief = async move {
            let goes_on = |watch: Arc<Self>| watch.needs_relief(number) && watch.probe();
            loop {
                sleep(INTERVAL).await;
                if !watch.upgrade().is_some_and(goes_on) {
                    return;
                }
            }
        };
        if let Some(runtime) = background::runtime() {
            runtime.spawn(relief);
        }
    }

    /// Whether no task probes, and this relief is the last.
    fn needs_relief(&self, number: u64) -> bool {
        let is_last = self.reliefs.load(Ordering::Acquire) == number;
        is_last && self.prober.load(Ordering::Acquire) == NOBODY
    }

    /// Makes `to` the task that probes if `from` was. Returns whether it was.
    fn hand_over(&self, from: u64, to: u64) -> bool {
        let swapped = self
            .prober
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }

    fn is_overdue(&self) -> bool {
        let probed = *self.probed.lock();
        probed.is_some_and(|probed| probed.elapsed() >= OVERDUE)
    }

    /// Probes all gates. `false`: none of them holds anything.
    fn probe(&self) -> bool {
        *self.probed.lock() = Some(Instant::now());
        let gates = self.live();
        let holding = gates.iter().map(|gate| gate.probe());
        holding.fold(false, |any, holding| any | holding)
    }

    fn live(&self) -> Vec<Arc<Gate>> {
        self.gates.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// The task that probes. If its runtime ends, the task is dropped, and the background probes until a
/// later poll starts another task.
struct Probing {
    watch: Weak<Watch>,
    number: u64,
}

impl Probing {
    fn new(watch: &Arc<Watch>, number: u64) -> Self {
        Self {
            watch: Arc::downgrade(watch),
            number,
        }
    }

    /// Until nothing is left to probe, or another task has taken over.
    async fn run(self) {
        loop {
            sleep(INTERVAL).await;
            let Some(watch) = self.watch.upgrade() else {
                return;
            };
            let replaced = watch.prober.load(Ordering::Acquire) != self.number;
            if replaced || !watch.probe() && self.stops(&watch) {
                return;
            }
        }
    }

    /// Stops, unless a gate that was filled meanwhile relies on this task. A gate is filled before
    /// its service reads `prober`, and here it is the other way round; the gate's lock orders
    /// the two, so one of them sees the other.
    fn stops(&self, watch: &Watch) -> bool {
        watch.hand_over(self.number, NOBODY);
        let needed = watch.live().iter().any(|gate| gate.is_holding());
        !(needed && watch.hand_over(NOBODY, self.number))
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        // A runtime without time panics in `sleep`; another task would do the same at once.
        if !std::thread::panicking()
            && let Some(watch) = self.watch.upgrade()
            && watch.hand_over(self.number, NOBODY)
        {
            watch.relieve();
        }
    }
}
