//! What is told of an account's permits, and when that is new.

use serde_json::{Value, json};
use std::time::SystemTime;
use tower_semaphore::semaphore::{PermitInfo, Usage};

/// The page draws fewer waiters.
const MOST_WAITERS: usize = 100;

/// Who holds the account's permits at one moment, and the head of the queue.
pub(super) struct Look {
    usage: Usage,
    queue_length: usize,
}

impl Look {
    pub(super) fn at(mut usage: Usage) -> Self {
        let queue_length = usage.waiting.len();
        usage.waiting.truncate(MOST_WAITERS);
        Self {
            usage,
            queue_length,
        }
    }

    pub(super) fn to_json(&self) -> String {
        let text = self.usage.to_json();
        let mut told: Value = serde_json::from_str(&text).unwrap_or_default();
        told["queue_length"] = json!(self.queue_length);
        told.to_string()
    }
}

/// Nothing but the time has changed. A waiter's heartbeat is no change: of a long queue there is one at each
/// moment.
impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        let (before, after) = (&self.usage, &other.usage);
        let limit = |usage: &Usage| (usage.limit, usage.is_limit_set);
        (
            self.queue_length,
            limit(before),
            &before.held,
            &before.pause,
        ) == (other.queue_length, limit(after), &after.held, &after.pause)
            && before
                .waiting
                .iter()
                .map(waiter)
                .eq(after.waiting.iter().map(waiter))
    }
}

fn waiter(info: &PermitInfo) -> (&str, SystemTime) {
    (&info.id, info.since)
}
