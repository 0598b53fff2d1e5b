//! The limits that operators have set, as a server last reported them.

use super::time::{CoreSettings, Time};
use crate::verbs::OperatorLimits;
use std::{collections::HashMap, mem};

/// The policy of locks, as it appears in names. The limit of a lock is always 1.
const LOCK: &str = "lock";

/// A change that operators should know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitsEvent {
    /// The server has lost limits that this process knew.
    Lost,
    /// The server does not report limits. This process may have no right to read them, or the slot of their key is
    /// stuck in a move.
    Unreported,
}

#[derive(Debug, Default)]
pub(super) struct LimitsState {
    /// `None` until a server has reported limits. 0 if this process has given up reading them before the first report.
    version: Option<u64>,
    /// The version with which the first limit was set. A different value means that the server has lost its data.
    first: u64,
    /// Limits by `POLICY:KEY` or `POLICY`.
    all: HashMap<Box<str>, u32>,
    /// The time at which a limit was last set here. The answer to an earlier call does not contain that limit.
    pub(super) set_here: Time,
    /// The time at which the last call that read the limits was sent.
    pub(super) read_at: Time,
    are_given_up: bool,
    /// The time since which their server has refused to report them, because the slot of their key is moving.
    pub(super) refused: Option<Time>,
    /// The last event that was not polled yet.
    pub(super) event: Option<LimitsEvent>,
}

impl LimitsState {
    pub(super) fn version(&self) -> Option<u64> {
        self.version
    }

    pub(super) fn take(&mut self, reported: OperatorLimits) {
        // If the version is lower, or the first version differs, the server has lost its data.
        let lacks_data = |known| reported.version < known || reported.first != self.first;
        let has_lost_data = self
            .version
            .is_some_and(|known| known > 0 && lacks_data(known));
        (self.version, self.first) = (Some(reported.version), reported.first);
        let limits = reported.limits.into_iter();
        let limits = limits.filter(|(of, _)| policy_of(of) != LOCK).collect();
        let known = mem::replace(&mut self.all, limits);
        if has_lost_data && known != self.all {
            self.event = Some(LimitsEvent::Lost);
        }
    }

    /// Notes that their server reports them.
    pub(super) fn note_reported(&mut self) {
        self.are_given_up = false;
        self.refused = None;
    }

    /// Notes that their server does not report them, so that claims no longer wait for them. The known limits stay in
    /// force.
    pub(super) fn note_unreported(&mut self) {
        if !mem::replace(&mut self.are_given_up, true) {
            self.event = Some(LimitsEvent::Unreported);
            self.version.get_or_insert(0);
        }
    }

    /// True if claims no longer wait for them, for example because this process has no right to read them.
    pub(super) fn are_given_up(&self) -> bool {
        self.are_given_up
    }

    pub(super) fn are_readable(&self) -> bool {
        !self.are_given_up && self.refused.is_none()
    }

    /// The time from which claims no longer wait, although the limits are refused.
    pub(super) fn gives_up_at(&self, settings: &CoreSettings) -> Option<Time> {
        let refused = self.refused.filter(|_| !self.are_given_up);
        refused.map(|since| since + settings.timeout)
    }

    /// The limit that is set for the semaphore of this name, or else for its policy.
    pub(super) fn limit_for(&self, name: &str) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        let (_, of) = name.split_once('{')?;
        // In the name of a budget, the window follows the brace.
        let (of, _) = of.rsplit_once('}')?;
        let limit = self.all.get(of).or_else(|| self.all.get(policy_of(of)));
        limit.copied()
    }
}

/// The policy of `POLICY:KEY` or `POLICY`.
fn policy_of(of: &str) -> &str {
    of.split_once(':').map_or(of, |(policy, _)| policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lost_if_different_ones_have_a_lower_version_or_another_first_version() {
        let mut limits = LimitsState::default();
        for ((version, first), all, is_lost) in [
            ((7, 7), &[("a", 1)][..], false),
            ((9, 7), &[], false),
            ((0, 0), &[], false),
            ((5, 5), &[("a", 2)], false),
            ((4, 4), &[("a", 2)], false),
            ((3, 3), &[("a", 1)], true),
            ((8, 3), &[("a", 3)], false),
            ((7, 3), &[("a", 4)], true),
            ((9, 9), &[("b", 3)], true),
            ((0, 0), &[], true),
        ] {
            let all = all.iter().map(|(of, limit)| (Box::from(*of), *limit));
            limits.take(OperatorLimits {
                version,
                first,
                limits: all.collect(),
            });
            let lost = is_lost.then_some(LimitsEvent::Lost);
            assert_eq!(limits.event.take(), lost, "{version}");
        }
    }

    #[test]
    fn missing_limits_are_an_event_once_until_their_server_reports_them() {
        let mut limits = LimitsState::default();
        let answers = [false, false, true, true, false];
        let events = answers.map(|are_reported| {
            if are_reported {
                limits.note_reported();
            } else {
                limits.note_unreported();
            }
            limits.event.take().is_some()
        });
        assert_eq!(events, [true, false, false, false, true]);
        assert_eq!(limits.version(), Some(0), "claims do not wait for them");
    }
}
