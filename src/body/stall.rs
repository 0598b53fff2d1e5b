//! Ends the permit of a body that a client does not read.
//!
//! A server polls a body when it has room for the next frame, so a body that has given a frame and is not
//! polled again waits for the client. A body that was polled and had no frame waits for its handler,
//! however long that takes.

use crate::{
    observe::LostBy,
    semaphore::{
        Permit,
        countdown::{Bounded, Countdown},
    },
};
use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Where times count from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of a body that waits for its handler.
const NEVER: u64 = u64::MAX;

/// One countdown for the whole of a body. A poll only notes the time.
pub(super) struct StallWatch {
    stall: Arc<Stall>,
    _countdown: Countdown,
}

struct Stall {
    permit: Permit,
    max_stall: Duration,
    /// Since when the body waits for the client, in microseconds since [`START`], or [`NEVER`].
    since: AtomicU64,
}

impl StallWatch {
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn start(permit: Permit, max_stall: Duration) -> Self {
        let stall = Arc::new(Stall {
            permit,
            max_stall,
            since: now().into(),
        });
        let held: Arc<dyn Bounded> = Arc::clone(&stall) as _;
        Self {
            _countdown: Countdown::start(Arc::downgrade(&held), max_stall),
            stall,
        }
    }

    /// The body was polled, and had a frame or not.
    pub(super) fn polled(&self, had_frame: bool) {
        let since = if had_frame { now() } else { NEVER };
        self.stall.since.store(since, Relaxed);
    }
}

impl Bounded for Stall {
    fn left(&self) -> Duration {
        match self.since.load(Relaxed) {
            NEVER => self.max_stall,
            since => {
                let stalled = Duration::from_micros(now().saturating_sub(since));
                self.max_stall.saturating_sub(stalled)
            }
        }
    }

    fn end(&self) {
        self.permit.end(LostBy::Bound);
    }
}

fn now() -> u64 {
    START.elapsed().as_micros() as u64
}
