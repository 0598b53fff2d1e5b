//! The scripts and their texts.

use super::{
    command::Sink,
    id::{LeaseUnits, tag_of, window_of},
};

/// A script. Its header documents KEYS, ARGV and what it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Acquire,
    Refresh,
    Release,
    /// The same three for levels that include budgets. They are separate, so that the others do not pay for budgets.
    AcquireBudgets,
    RefreshBudgets,
    ReleaseBudgets,
    Presence,
    Usage,
    Revoke,
    Pause,
    Limits,
    Check,
}

/// The suffix of the key of the last token. A budget has no tokens: its script gets the key of its state instead.
const TOKEN: &str = ":token";

/// Concatenates files of this folder at compile time.
macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

impl Verb {
    pub const ALL: [Self; 12] = [
        Self::Acquire,
        Self::Refresh,
        Self::Release,
        Self::AcquireBudgets,
        Self::RefreshBudgets,
        Self::ReleaseBudgets,
        Self::Presence,
        Self::Usage,
        Self::Revoke,
        Self::Pause,
        Self::Limits,
        Self::Check,
    ];

    /// The name of the script. Its file has the same name, but `acquire_budgets` is in acquire.lua, and
    /// `release_budgets` in release.lua.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Refresh => "refresh",
            Self::Release => "release",
            Self::AcquireBudgets => "acquire_budgets",
            Self::RefreshBudgets => "refresh_budgets",
            Self::ReleaseBudgets => "release_budgets",
            Self::Presence => "presence",
            Self::Usage => "usage",
            Self::Revoke => "revoke",
            Self::Pause => "pause",
            Self::Limits => "limits",
            Self::Check => "check",
        }
    }

    /// The text of the script.
    pub fn source(self) -> &'static str {
        match self {
            Self::Acquire => text!("common.lua", "grant.lua", "queue.lua", "acquire.lua"),
            Self::Refresh => text!("common.lua", "refresh.lua"),
            Self::Release => text!("common.lua", "grant.lua", "release.lua"),
            Self::AcquireBudgets => text!(
                "common.lua",
                "grant.lua",
                "budget.lua",
                "queue.lua",
                "acquire.lua"
            ),
            Self::RefreshBudgets => text!(
                "common.lua",
                "grant.lua",
                "budget.lua",
                "refresh_budgets.lua"
            ),
            Self::ReleaseBudgets => {
                text!("common.lua", "grant.lua", "budget.lua", "release.lua")
            }
            Self::Presence => text!("common.lua", "presence.lua"),
            Self::Usage => text!("common.lua", "usage.lua"),
            Self::Revoke => text!("common.lua", "grant.lua", "budget.lua", "revoke.lua"),
            Self::Pause => text!("common.lua", "grant.lua", "budget.lua", "pause.lua"),
            Self::Limits => text!("common.lua", "limits.lua"),
            Self::Check => text!("check.lua"),
        }
    }

    /// The suffixes of the names of a semaphore's keys, in the order in which the script takes the keys. A script for
    /// keys of the store itself gets their whole names, without a suffix.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Acquire
            | Self::Release
            | Self::AcquireBudgets
            | Self::RefreshBudgets
            | Self::ReleaseBudgets
            | Self::Revoke
            | Self::Pause => &[":held", ":queue", ":alive", TOKEN],
            Self::Refresh => &[":held", ":token"],
            Self::Usage => &[":held", ":queue", ":alive"],
            Self::Presence | Self::Limits | Self::Check => &[""],
        }
    }

    /// Writes the names of the keys of a semaphore or a budget.
    pub(super) fn add_keys(self, name: &str, sink: &mut impl Sink) {
        let is_budget = window_of(name).is_some();
        for suffix in self.keys() {
            match *suffix {
                TOKEN if is_budget => sink.add(format_args!("{}:budget", tag_of(name))),
                suffix => sink.add(format_args!("{name}{suffix}")),
            }
        }
    }

    /// The script for these units: this one, or its variant for budgets if the units include reservations.
    pub(super) fn serving<'a>(self, mut units: impl Iterator<Item = &'a LeaseUnits>) -> Self {
        let with_budgets = units.any(|units| units.reservation.is_some());
        match self {
            Self::Acquire if with_budgets => Self::AcquireBudgets,
            Self::Refresh if with_budgets => Self::RefreshBudgets,
            Self::Release if with_budgets => Self::ReleaseBudgets,
            other => other,
        }
    }
}
