//! The parameters of a run: its length, its seed, and the settings of the markets.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) const LIMIT: u32 = 3;
pub(crate) const ACCOUNTS: [&str; 4] = ["ann", "bob", "eve", "joe"];
/// Less than the accounts' limits together, so both limits have queues.
pub(crate) const FLEET_LIMIT: u32 = 8;
pub(crate) const LEASE: Duration = Duration::from_secs(4);
pub(crate) const WAIT: Duration = Duration::from_millis(1_500);
pub(crate) const MAX_STALL: Duration = Duration::from_secs(2);

/// The length of an interruption that loses no permit, even if a refresh was just due.
pub(crate) const SHORT_MS: std::ops::Range<u64> = 50..800;
/// The length of an interruption that is longer than a lease.
pub(crate) const LONG_MS: std::ops::Range<u64> = 4_500..6_500;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
}

impl Plan {
    /// Reads `SOAK_MINUTES`, 1 by default, and `SOAK_SEED`, a new one by default.
    pub(crate) fn from_env() -> Self {
        let minutes = env::var("SOAK_MINUTES").map_or(1.0, |minutes| {
            minutes.parse().expect("SOAK_MINUTES is a number")
        });
        let seed = env::var("SOAK_SEED").map_or_else(
            |_| now() as u64,
            |seed| {
                let digits = seed.trim_start_matches("0x");
                u64::from_str_radix(digits, 16).expect("SOAK_SEED is a hexadecimal number")
            },
        );
        Self {
            seed,
            duration: Duration::from_secs_f64(60.0 * minutes),
        }
    }
}

/// The time in microseconds since 1970, on the same clock as the server and `MONITOR`.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    micros(now.expect("it is later than 1970"))
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a duration of less than an age")
}
