//! The keeper's thread: time, refreshes, and whatever no runtime carries.

use super::{
    carry::{Link, Load, spawn_all},
    shared::{Dropped, Next, Shared},
    transport::{News, Transport},
};
use crate::redis::core::{Change, Core, THREAD, Time};
use std::{io, mem, sync::Arc, thread, time::Duration};
use tokio::{runtime, select, task::yield_now, time::sleep};

/// How long a thread waits that takes the place of one that has panicked.
const PAUSE: Duration = Duration::from_millis(10);

/// How often the ends of leases are looked at when there is no core.
const CLOSED: Duration = Duration::from_millis(100);

/// While claims come and go, the thread looks as often, at the full milliseconds of Tokio's timers. So it need not be
/// woken for what they leave.
const TICK: Duration = Duration::from_micros(250);

/// How late it may be.
const SLACK: Duration = Duration::from_millis(1);

/// The longest sleep, because a timer does not notice that the machine was suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// What the thread does next.
pub(super) struct Step<C> {
    pub(super) load: Option<Load<C>>,
    /// The servers that it connects to.
    connects: Vec<usize>,
    pub(super) sleep: Duration,
    pub(super) is_over: bool,
}

/// Starts the thread. If that fails the next who looks tries again.
pub(super) fn start<T: Transport>(shared: &Arc<Shared<T>>) {
    let own = Arc::clone(shared);
    let name = "tower-semaphore".to_owned();
    let spawned = thread::Builder::new().name(name).spawn(move || {
        let running = Running(own);
        // Without a runtime, as without a thread, the next one tries again.
        let _ = running.run();
    });
    if spawned.is_err() {
        shared.change(|rest| rest.keeper.runs = false);
    }
}

/// The thread. Its end, by a panic too, is noticed.
struct Running<T: Transport>(Arc<Shared<T>>);

impl<T: Transport> Running<T> {
    fn run(&self) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            select! {
                () = keep(&self.0) => {}
                () = follow_slots(&self.0) => {}
            }
        });
        Ok(())
    }
}

impl<T: Transport> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.change(|rest| rest.keeper = Keeper::default());
        if thread::panicking() {
            self.0.tell(News::KeeperDied);
            thread::sleep(PAUSE);
        }
        self.0.post(Dropped::Keeper);
    }
}

/// Tells the core where slots are.
async fn follow_slots<T: Transport>(shared: &Arc<Shared<T>>) {
    let mut version = 0;
    loop {
        let slots;
        (version, slots) = shared.transport.slots(version).await;
        shared.enter(|core, _, now| core.handle_servers(now, Change::Slots(slots)));
        shared.bell.notify_one();
    }
}

async fn keep<T: Transport>(shared: &Arc<Shared<T>>) {
    loop {
        let step = shared.look();
        spawn_all(shared, step.load);
        for server in step.connects {
            Link::new(shared, THREAD, server).spawn();
        }
        if step.is_over {
            shared.is_over.send_replace(true);
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
    /// Does what is due.
    pub(super) fn look(self: &Arc<Self>) -> Step<T::Connection> {
        let step = self.enter(|core, rest, now| {
            core.handle_timeout(now);
            let Next { load, has_more } = rest.next(core, now, THREAD);
            let connects = core.servers();
            let connects = connects.filter(|server| rest.runtimes.connects(now, THREAD, *server));
            let connects = connects.collect();
            let due = rest.due(core);
            let until = match has_more {
                true => now,
                false => rest.keeper.sleeps(now, due),
            };
            Step {
                load,
                connects,
                sleep: until.saturating_sub(now),
                is_over: !rest.is_used && core.is_idle(),
            }
        });
        step.unwrap_or_else(|| Step {
            load: None,
            connects: Vec::new(),
            sleep: CLOSED,
            is_over: self.change(|rest| !rest.is_used),
        })
    }
}

/// What the thread needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Needs {
    #[default]
    Nothing,
    /// It has work before it wakes by itself.
    Bell,
    /// There is none.
    Start,
}

/// What is known of the thread.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) runs: bool,
    /// When it wakes by itself. Zero: it does not sleep.
    sleeps_until: Time,
    /// Whether claims or releases came since it looked.
    pub(super) is_busy: bool,
}

impl Keeper {
    /// Looks what the thread needs, once the lock is released. It has something to do when that is `due`.
    pub(super) fn look(&mut self, core: Option<&Core>, due: Option<Time>, is_used: bool) -> Needs {
        let is_over = !is_used && core.is_none_or(Core::is_idle);
        if !self.runs {
            self.runs = !is_over;
            return match is_over {
                true => Needs::Nothing,
                false => Needs::Start,
            };
        }
        if is_over || core.is_some_and(|core| self.is_late(core, due)) {
            self.sleeps_until = Time::ZERO;
            return Needs::Bell;
        }
        Needs::Nothing
    }

    /// Whether there is something for it to do before it wakes.
    fn is_late(&self, core: &Core, due: Option<Time>) -> bool {
        let is_due = due.is_some_and(|due| due + SLACK < self.sleeps_until);
        let sleeps = self.sleeps_until > Time::ZERO;
        sleeps && (is_due || core.has_call(THREAD))
    }

    /// Until when it sleeps if `due` is when something is to be done.
    pub(super) fn sleeps(&mut self, now: Time, due: Option<Time>) -> Time {
        let longest = match mem::take(&mut self.is_busy) {
            true => now + TICK,
            false => now + LONGEST,
        };
        self.sleeps_until = due.map_or(longest, |due| due.min(longest));
        self.sleeps_until
    }
}

/// How long ago the machine has booted, the time of its suspensions included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(in crate::redis) fn boot_time() -> Time {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    Time::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// How long ago this was first asked. Whether suspensions count depends on the system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(in crate::redis) fn boot_time() -> Time {
    use std::{sync::OnceLock, time::Instant};
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
