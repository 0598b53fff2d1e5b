//! A snapshot of an account's permits, and when two snapshots differ.

use serde_json::{Value, json};
use std::time::SystemTime;
use tower_semaphore::semaphore::{PermitInfo, Usage};

/// The page draws 20. The others replace waiters that leave.
const MOST_WAITERS: usize = 100;

/// The account's holders at one moment, and the head of the queue.
pub(super) struct Snapshot {
    usage: Usage,
    queue_length: usize,
}

impl Snapshot {
    pub(super) fn new(mut usage: Usage) -> Self {
        let queue_length = usage.waiting.len();
        usage.waiting.truncate(MOST_WAITERS);
        Self {
            usage,
            queue_length,
        }
    }

    pub(super) fn to_json(&self) -> String {
        let text = self.usage.to_json();
        let mut json: Value = serde_json::from_str(&text).unwrap_or_default();
        json["queue_length"] = json!(self.queue_length);
        json.to_string()
    }
}

/// Equal if nothing but the time has changed. Waiters' heartbeats do not count as changes, because a long queue has one
/// at any moment.
impl PartialEq for Snapshot {
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
