//! The limits that operators have set, as a server has told them last.

use super::time::Time;
use crate::redis::protocol::Told;
use std::{collections::HashMap, mem};

/// The policy of locks, as names have it. Their limit is 1 whatever a server has.
const LOCK: &str = "lock";

/// The limits, as a server has told them last.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// `None`: no server has told any yet.
    version: Option<u64>,
    /// The version when the first was set on their server.
    first: u64,
    /// By what they are of: `POLICY:KEY`, or `POLICY`.
    all: HashMap<Box<str>, u32>,
    /// How often they have changed.
    pub(super) changes: u32,
    /// When one was last set here. What a server was asked before does not tell it.
    pub(super) set_here: Time,
    /// Whether some were lost since that was last asked.
    pub(super) were_lost: bool,
}

impl Limits {
    pub(super) fn version(&self) -> Option<u64> {
        self.version
    }

    pub(super) fn take(&mut self, told: Told) {
        // They are of an earlier time, or were set anew: the server has lost its data.
        let are_older = |known| told.version < known || told.first != self.first;
        let are_others = self.version.is_some_and(|known| known > 0 && are_older(known));
        (self.version, self.first) = (Some(told.version), told.first);
        let limits = told.limits.into_iter();
        let limits = limits.filter(|(of, _)| policy_of(of) != LOCK).collect();
        let known = mem::replace(&mut self.all, limits);
        self.were_lost |= are_others && known != self.all;
        self.changes += 1;
    }

    /// Their server cannot tell them, as without a right to them.
    pub(super) fn cannot_be_told(&mut self) {
        self.version.get_or_insert(0);
    }

    /// The limit of a semaphore, by its name.
    pub(super) fn of(&self, name: &str) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        let (_, of) = name.split_once('{')?;
        let of = of.strip_suffix('}')?;
        let limit = self.all.get(of).or_else(|| self.all.get(policy_of(of)));
        limit.copied()
    }
}

fn policy_of(of: &str) -> &str {
    of.split_once(':').map_or(of, |(policy, _)| policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_lost_if_older_ones_are_told_that_are_others() {
        let mut limits = Limits::default();
        for (version, all, were_lost) in [
            (7, &[("a", 1)][..], false),
            (9, &[], false),
            (0, &[], false),
            (5, &[("a", 2)], false),
            (4, &[("a", 2)], false),
            (3, &[("a", 1)], true),
            (0, &[], true),
        ] {
            let told = all.iter().map(|(of, limit)| (Box::from(*of), *limit));
            let told = told.collect();
            limits.take(Told {
                version,
                limits: told,
            });
            assert_eq!(mem::take(&mut limits.were_lost), were_lost, "{version}");
        }
    }
}
