//! The driver's synchronization. On request, the mutex records how long the core's lock is held.

pub(crate) use futures_util::task::AtomicWaker;
use parking_lot::MutexGuard as Guard;
use rustix::time::{ClockId, clock_gettime};
pub(crate) use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, fence},
};
use std::{
    any::type_name,
    ops::{Deref, DerefMut},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

/// A histogram of how long the core's lock was held, in nanoseconds. Each power of two is divided into eight steps, so
/// the 64 powers of a `u64` need 512.
static HOLDS: [AtomicUsize; 512] = [const { AtomicUsize::new(0) }; 512];
static IS_MEASURED: AtomicBool = AtomicBool::new(false);
/// True if hold times are CPU times.
static IS_CPU_TIME: AtomicBool = AtomicBool::new(false);

/// Starts to measure: in the CPU time of the thread, which excludes preemptions, or in wall time, which is cheaper to
/// read.
pub(crate) fn measure(is_cpu_time: bool) {
    for hold in &HOLDS {
        hold.store(0, Relaxed);
    }
    IS_CPU_TIME.store(is_cpu_time, Relaxed);
    IS_MEASURED.store(true, Relaxed);
}

fn now() -> Duration {
    let clock = if IS_CPU_TIME.load(Relaxed) {
        ClockId::ThreadCPUTime
    } else {
        ClockId::Monotonic
    };
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The index of a time in the histogram. The three bits after the highest one select the eighth.
fn step(time: Duration) -> usize {
    let nanos = (time.as_nanos() as u64).max(8);
    let power = nanos.ilog2();
    (power * 8) as usize + ((nanos >> (power - 3)) & 7) as usize
}

/// Percentiles of the hold times: the median, 99 %, 99.9 %, and the longest.
pub(crate) fn holds() -> [Duration; 4] {
    let counts = HOLDS.each_ref().map(|hold| hold.load(Relaxed));
    let all: usize = counts.iter().sum();
    [0.5, 0.99, 0.999, 1.0].map(|part| {
        let mut rank = (all as f64 * part).ceil() as usize;
        let found = counts.iter().position(|count| {
            let is_found = rank <= *count;
            rank = rank.saturating_sub(*count);
            is_found
        });
        // The upper end of the step.
        let step = found.unwrap_or_default() as u32 + 1;
        Duration::from_nanos((1_u64 << (step / 8)) + ((u64::from(step) % 8) << (step / 8)) / 8)
    })
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    guard: Guard<'a, T>,
    since: Option<Duration>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self.0.lock())
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(MutexGuard::new)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    fn new(guard: Guard<'a, T>) -> Self {
        // Only the core's lock protects a type with this name.
        let is_core = IS_MEASURED.load(Relaxed) && type_name::<T>().contains("State");
        let since = is_core.then(now);
        Self { guard, since }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            HOLDS[step(now().saturating_sub(since))].fetch_add(1, Relaxed);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
