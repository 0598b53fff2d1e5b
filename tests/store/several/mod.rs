//! Several limits at once: random schedules, and what Redis itself says of them.

mod in_the_call;
#[cfg(feature = "redis")]
mod one_script;
mod schedules;

use std::time::Duration;

/// What must happen, but not at a certain time.
const BOUND: Duration = Duration::from_secs(20);
