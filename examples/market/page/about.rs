//! The settings that the page shows.

use crate::settings::Settings;
use serde::Serialize;
use std::time::Duration;

/// The settings that the page shows.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    limit: u32,
    /// `memory`, or `redis` for a market of several processes.
    store: &'static str,
    lease_ms: u64,
    wait_ms: u64,
    /// True if no request is refused.
    shadow: bool,
}

impl About {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            limit: settings.limit,
            store: if settings.redis.is_some() {
                "redis"
            } else {
                "memory"
            },
            lease_ms: milliseconds(settings.lease),
            wait_ms: milliseconds(settings.wait),
            shadow: settings.shadow,
        }
    }
}

/// Converts a setting to milliseconds. No setting is longer than a day.
fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
