//! How many processes share the store.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How many processes are alive, as the server has told: the most of the last one to two leases,
/// because a server that has lost its data counts from one again. The time of an outage is no part of
/// them.
#[derive(Default)]
pub(super) struct Live(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// The most in this window and in the one before.
    most: [u32; 2],
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Live {
    /// The server counts so many.
    pub(super) fn told(&self, count: u32, now: Instant, window: Duration) {
        let mut told = self.0.lock();
        let last = told.last.replace(now).unwrap_or(now);
        if now.saturating_duration_since(last) > window / 2 {
            // What it told before an outage has to be told otherwise for as long as ever.
            told.since = Some(now);
        }
        let since = *told.since.get_or_insert(now);
        if now.saturating_duration_since(since) > window {
            told.most = [0, told.most[0]];
            told.since = Some(now);
        }
        told.most[0] = told.most[0].max(count);
    }

    /// How many there are; 0 if the server has not told yet.
    pub(super) fn count(&self) -> u32 {
        self.0.lock().most.into_iter().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_a_server_that_counts_anew_holds_after_two_leases() {
        let (live, start, lease) = (Live::default(), Instant::now(), Duration::from_secs(10));
        assert_eq!(live.count(), 0);
        let told = |count, seconds| live.told(count, start + Duration::from_secs(seconds), lease);
        told(5, 0);
        (1..=5).for_each(|at| told(1, at * 4));
        assert_eq!(live.count(), 5);
        told(1, 24);
        assert_eq!(live.count(), 1);
        told(7, 25);
        assert_eq!(live.count(), 7);
    }

    #[test]
    fn outages_leave_the_count() {
        let (live, start, lease) = (Live::default(), Instant::now(), Duration::from_secs(10));
        for at in 0..9 {
            let now = start + Duration::from_secs(60 * at);
            live.told(if at == 0 { 3 } else { 1 }, now, lease);
            assert_eq!(live.count(), 3);
        }
    }
}
