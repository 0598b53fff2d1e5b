//! The pauses that this process has set, for claims that are decided without a server.

use super::{swept::SweptMap, time::Time};
use std::sync::Arc;

/// The ends of the pauses that this process has set, by the names of their semaphores.
#[derive(Debug, Default)]
pub(super) struct LocalPauses(SweptMap<Time>);

impl LocalPauses {
    /// Records a pause, unless a longer one is recorded. Sometimes removes ended pauses.
    pub(super) fn extend(&mut self, now: Time, name: Arc<str>, until: Time) {
        let end = self.0.entry(name, |end| *end > now);
        *end = until.max(*end);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The end of the semaphore's pause, if it is paused now.
    pub(super) fn end_of(&self, name: &str, now: Time) -> Option<Time> {
        self.0.get(name).copied().filter(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::swept::FEW, *};
    use std::time::Duration;

    #[test]
    fn a_shorter_pause_does_not_replace_a_longer_one() {
        let (mut pauses, now) = (LocalPauses::default(), Time::from_secs(100));
        let end = |seconds| now + Duration::from_secs(seconds);
        pauses.extend(now, "a".into(), end(5));
        pauses.extend(now, "a".into(), end(3));
        assert_eq!(pauses.end_of("a", now), Some(end(5)));
        assert_eq!(pauses.end_of("a", end(5)), None);
        pauses.remove("a");
        assert_eq!(pauses.end_of("a", now), None);
    }

    #[test]
    fn ended_pauses_are_removed_once_there_are_many_and_others_stay() {
        let mut pauses = LocalPauses::default();
        for second in 0..1_000 {
            let now = Time::from_secs(second);
            let length = if second == 0 { 10_000 } else { 1 };
            let until = now + Duration::from_secs(length);
            pauses.extend(now, second.to_string().into(), until);
            assert!(pauses.0.len() <= FEW + 1);
        }
        assert!(pauses.end_of("0", Time::from_secs(1_000)).is_some());
    }
}
