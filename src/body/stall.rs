//! Ends the permit of a body that a client does not read.
//!
//! A server polls a body when it has room for the next frame. So a body that returned a frame and
//! is not polled again waits for the client; a body that was polled and had no frame waits for its
//! handler, however long that takes.

use crate::{
    background::{Bounded, Countdown},
    observe::LostBy,
    semaphore::Permit,
    timer,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Marks a body that waits for its handler.
const NEVER: i64 = i64::MAX;

/// One countdown per body. A poll only notes the time.
pub(super) struct StallWatch {
    stall: Arc<Stall>,
    _countdown: Countdown,
}

struct Stall {
    permit: Permit,
    max_stall: Duration,
    /// The begin of the wait for the client, in [nanoseconds](timer::nanos), or [`NEVER`].
    since: AtomicI64,
}

impl StallWatch {
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn start(permit: Permit, max_stall: Duration) -> Self {
        let stall = Arc::new(Stall {
            permit,
            max_stall,
            since: timer::nanos().into(),
        });
        let held: Arc<dyn Bounded> = Arc::clone(&stall) as _;
        Self {
            _countdown: Countdown::start(Arc::downgrade(&held), max_stall),
            stall,
        }
    }

    /// Notes a poll of the body, and whether it had a frame.
    pub(super) fn polled(&self, had_frame: bool) {
        let since = if had_frame { timer::nanos() } else { NEVER };
        self.stall.since.store(since, Relaxed);
    }
}

impl Bounded for Stall {
    fn left(&self) -> Duration {
        match self.since.load(Relaxed) {
            NEVER => self.max_stall,
            since => {
                let stalled = timer::nanos().saturating_sub(since).max(0);
                let stalled = Duration::from_nanos(stalled.unsigned_abs());
                self.max_stall.saturating_sub(stalled)
            }
        }
    }

    fn end(&self) {
        self.permit.end(LostBy::Bound);
    }
}
