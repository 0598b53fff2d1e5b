//! Finds gates whose service is idle: kept, but not used any more.
//!
//! Tower does not report to a service that its caller has lost interest: `load_shed` forgets a
//! service that was not ready, a connection pool keeps one that is idle. So while a gate holds a
//! permit or is in the queue, one task for all services of a layer probes it about each second.

use super::gate::Gate;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

const INTERVAL: Duration = Duration::from_secs(1);

/// The gates of a layer's services and of their clones.
#[derive(Default)]
pub(super) struct Watch {
    gates: Mutex<Vec<Weak<Gate>>>,
    probing: AtomicBool,
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

    /// Starts probing, unless a task does so already or there is no Tokio runtime.
    #[inline]
    pub(super) fn start(self: &Arc<Self>) {
        if !self.probing.load(Ordering::Relaxed) {
            self.spawn();
        }
    }

    #[cold]
    fn spawn(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.probing.swap(true, Ordering::AcqRel) {
            runtime.spawn(Probing::new(self).run());
        }
    }

    /// Probes all gates. `false`: none of them holds anything.
    fn probe(&self) -> bool {
        let gates = self.live();
        let holding = gates.iter().map(|gate| gate.probe());
        holding.fold(false, |any, holding| any | holding)
    }

    fn live(&self) -> Vec<Arc<Gate>> {
        self.gates.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// The task that probes. A runtime that ends drops it, and a later poll starts another one.
struct Probing {
    watch: Weak<Watch>,
    stopped: bool,
}

impl Probing {
    fn new(watch: &Arc<Watch>) -> Self {
        Self {
            watch: Arc::downgrade(watch),
            stopped: false,
        }
    }

    /// Until nothing is left to probe.
    async fn run(mut self) {
        while !self.stopped {
            sleep(INTERVAL).await;
            let Some(watch) = self.watch.upgrade() else {
                return;
            };
            if !watch.probe() {
                self.stop(&watch);
            }
        }
    }

    /// Stops, unless a gate that was filled meanwhile relies on this task. A gate is filled before
    /// its service reads `probing`, and here it is the other way round; the gate's lock orders
    /// the two, so one of them sees the other.
    fn stop(&mut self, watch: &Watch) {
        watch.probing.store(false, Ordering::Release);
        let needed = watch.live().iter().any(|gate| gate.is_holding());
        let goes_on = needed && !watch.probing.swap(true, Ordering::AcqRel);
        self.stopped = !goes_on;
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        // A runtime without time panics in `sleep`; another task would do the same.
        if !self.stopped
            && !std::thread::panicking()
            && let Some(watch) = self.watch.upgrade()
        {
            watch.probing.store(false, Ordering::Release);
        }
    }
}
