//! The keeper's thread: time, refreshes, and the calls that no runtime sends.

use super::{
    carry::{Carrier, Link, spawn},
    runtimes::Keeper,
    shared::{Dropped, NextCall, RoutedCall, Shared},
    transport::{News, Transport},
};
use crate::observe::contain;
use proto::core::{Change, THREAD, Time};
use std::{sync::Arc, thread, time::Duration};
use tokio::{runtime, select, task::yield_now, time::sleep};

/// The time after which a thread that has panicked is replaced, so that repeated panics do not busy a core.
const PAUSE_AFTER_PANIC: Duration = Duration::from_millis(10);

/// The time after which a thread that could make no runtime is replaced.
const PAUSE_WITHOUT_RUNTIME: Duration = Duration::from_millis(100);

/// The interval at which the ends of leases are checked once the core has panicked.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);

/// The next actions of the thread.
pub(super) struct KeeperStep<C> {
    pub(super) call: Option<RoutedCall<C>>,
    /// The servers to connect to.
    connects: Vec<usize>,
    pub(super) sleep: Duration,
    pub(super) is_over: bool,
}

/// Starts the thread. If that fails, the policy for outages decides claims, and the next use of the store tries again.
pub(super) fn start<T: Transport>(shared: &Arc<Shared<T>>) {
    let for_thread = Arc::clone(shared);
    let builder = thread::Builder::new().name("tower-semaphore".to_owned());
    let spawned = builder.spawn(move || KeeperThread(for_thread).run());
    if spawned.is_err() {
        continue_without_thread(shared);
        shared.change(|rest| rest.keeper.runs = false);
    }
}

/// Handles due work without the thread. Nothing can be sent for the thread then, because it has no connection.
fn continue_without_thread<T: Transport>(shared: &Arc<Shared<T>>) {
    shared.enter(|core, _, now| {
        let servers: Vec<_> = core.servers().collect();
        for server in servers {
            core.handle_servers(now, Change::Gone(THREAD, server));
        }
        core.handle_timeout(now);
    });
}

/// The thread. Dropping this value reports its end, even after a panic.
struct KeeperThread<T: Transport>(Arc<Shared<T>>);

impl<T: Transport> KeeperThread<T> {
    /// Runs the thread. If no runtime can be made, for example for lack of file descriptors, the policy for outages
    /// decides claims, and another thread tries again.
    fn run(&self) {
        let mut builder = runtime::Builder::new_current_thread();
        // Tokio panics if the process runs out of descriptors while the runtime is being made.
        let runtime = contain(|| builder.enable_all().build()).and_then(Result::ok);
        self.0.change(|rest| rest.lacks_runtime = runtime.is_none());
        let Some(runtime) = runtime else {
            continue_without_thread(&self.0);
            return thread::sleep(PAUSE_WITHOUT_RUNTIME);
        };
        runtime.block_on(async {
            select! {
                () = run_until_over(&self.0) => {}
                () = follow_slots(&self.0) => {}
            }
        });
    }
}

impl<T: Transport> Drop for KeeperThread<T> {
    fn drop(&mut self) {
        self.0.change(|rest| rest.keeper = Keeper::default());
        if thread::panicking() {
            self.0.report(News::KeeperDied);
            thread::sleep(PAUSE_AFTER_PANIC);
        }
        self.0.post(Dropped::Keeper);
    }
}

/// Reports the servers of slots to the core.
async fn follow_slots<T: Transport>(shared: &Arc<Shared<T>>) {
    let mut version = 0;
    loop {
        let slots;
        (version, slots) = shared.transport.slots(version).await;
        shared.enter(|core, _, now| core.handle_servers(now, Change::Slots(slots)));
        shared.bell.notify_one();
    }
}

/// Runs the thread's steps, and sleeps between them, until the store is over.
async fn run_until_over<T: Transport>(shared: &Arc<Shared<T>>) {
    loop {
        let step = shared.run_keeper_step();
        spawn(step.call.map(|call| Carrier::new(shared, call)));
        for server in step.connects {
            Link::new(shared, THREAD, server).spawn();
        }
        if step.is_over {
            shared.is_thread_over.send_replace(true);
            return;
        }
        match step.sleep {
            Duration::ZERO => yield_now().await,
            time => select! {
                () = shared.bell.notified() => {}
                () = sleep(time) => {}
            },
        }
    }
}

impl<T: Transport> Shared<T> {
    /// Handles due work in the core. Returns the next actions of the thread.
    pub(super) fn run_keeper_step(self: &Arc<Self>) -> KeeperStep<T::Connection> {
        let step = self.enter(|core, rest, now| {
            core.handle_timeout(now);
            let NextCall { call, has_more } = rest.next(core, now, THREAD);
            let connects = core.servers();
            let connects =
                connects.filter(|server| rest.runtimes.begin_connecting(now, THREAD, *server));
            let connects = connects.collect();
            let due = rest.due(core);
            let until = match has_more {
                true => now,
                false => rest.keeper.plan_sleep(now, due),
            };
            KeeperStep {
                call,
                connects,
                sleep: until.saturating_sub(now),
                is_over: !rest.is_used && core.is_idle(),
            }
        });
        step.unwrap_or_else(|| KeeperStep {
            call: None,
            connects: Vec::new(),
            sleep: CLOSED_INTERVAL,
            is_over: self.change(|rest| !rest.is_used),
        })
    }
}

/// The time since the machine booted, including its suspensions.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(in crate::redis) fn boot_time() -> Time {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    Time::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The time since the first call. It depends on the system if this includes suspensions.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(in crate::redis) fn boot_time() -> Time {
    use std::{sync::OnceLock, time::Instant};
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
