//! Mistakes of the service that its requests reveal: logged as errors, and not at each request.

use crate::{key::KeyError, observe::events, semaphore::Policy};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long an error is not logged again.
const PAUSE: Duration = Duration::from_secs(60);

/// What a layer has logged.
#[derive(Default)]
pub(crate) struct Mistakes {
    /// When a request had no key because of the service.
    forgotten: Mutex<Option<Instant>>,
    is_nested: AtomicBool,
}

impl Mistakes {
    /// A request has no key: the client has left it out, or the service has.
    pub(crate) fn without_key(&self, policy: &Policy, error: &KeyError) {
        match error {
            KeyError::MissingExtension { extension } => {
                if self.is_due() {
                    events::forgotten(policy.as_str(), extension);
                }
            }
            error => events::without_key(policy.as_str(), error),
        }
    }

    /// A limit has found the permit of an outer one for what it would claim itself.
    pub(crate) fn nested(&self, policy: &Policy, outer: u32, inner: u32) {
        if !self.is_nested.swap(true, Relaxed) {
            events::nested(policy.as_str(), outer, inner);
        }
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = self.forgotten.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
