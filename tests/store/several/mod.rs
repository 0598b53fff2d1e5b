//! Several limits at once: random schedules, and the commands that Redis runs for them.

mod in_the_call;
#[cfg(feature = "redis")]
mod one_script;
mod schedules;

use std::time::Duration;

/// The longest time for an event that must happen, but at no particular time.
const BOUND: Duration = Duration::from_secs(20);
