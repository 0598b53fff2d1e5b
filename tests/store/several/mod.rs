//! Several limits at once: random schedules, what Redis itself says of them, and processes that
//! are killed.

mod crowd;
mod in_the_call;
#[cfg(feature = "redis")]
mod one_script;
#[cfg(feature = "redis")]
mod processes;
mod schedules;
#[cfg(feature = "redis")]
mod server;
#[cfg(all(feature = "redis", target_os = "linux"))]
mod set_back;

use std::time::Duration;

/// What must happen, but not at a certain time.
const BOUND: Duration = Duration::from_secs(20);
