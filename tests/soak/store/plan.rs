//! What a run does, and for how long.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// How long the load of a run lasts, unless its environment says so many seconds.
const LENGTH: Duration = Duration::from_secs(3);
const SECONDS: &str = "SOAK_SECONDS";
const SEED: &str = "SOAK_SEED";

/// What happens to the link or to a process under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Connections end, with FIN or RST.
    Cuts,
    /// Connections stay open while nothing passes, in one direction or both, for a while or for
    /// ever.
    Silence,
    /// A process with a load of its own is killed.
    Kill,
}

impl Fault {
    /// Whether the server is there all the time.
    pub(crate) fn is_healthy(self) -> bool {
        matches!(self, Self::None | Self::Kill)
    }

    /// The lease of the stores. Much longer than the bound at the end of a run, so that no lease
    /// frees a leaked permit in time, unless its holder was killed.
    pub(crate) fn lease(self) -> Duration {
        match self {
            Self::Kill => Duration::from_secs(2),
            _ => Duration::from_secs(30),
        }
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    /// A round trip, half of it each way.
    pub(crate) trip: Duration,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn new(fault: Fault, trip_ms: u64) -> Self {
        Self {
            fault,
            trip: Duration::from_millis(trip_ms),
            length: length(),
            seed: seed(),
        }
    }
}

fn length() -> Duration {
    let Ok(seconds) = env::var(SECONDS) else {
        return LENGTH;
    };
    Duration::from_secs(seconds.parse().expect("SOAK_SECONDS is a number"))
}

fn seed() -> u64 {
    let Ok(seed) = env::var(SEED) else {
        return RandomState::new().hash_one(SEED);
    };
    let digits = seed.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).expect("SOAK_SEED is hexadecimal")
}
