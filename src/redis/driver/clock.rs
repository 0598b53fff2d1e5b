//! This machine's clock.

use crate::redis::core::Time;

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
