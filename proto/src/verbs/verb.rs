//! The scripts and their texts.

/// A script. Its header documents KEYS, ARGV and what it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Acquire,
    Refresh,
    Release,
    Presence,
    Usage,
    Revoke,
    Pause,
    Limits,
    Check,
}

/// Concatenates files of this folder at compile time.
macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

impl Verb {
    pub const ALL: [Self; 9] = [
        Self::Acquire,
        Self::Refresh,
        Self::Release,
        Self::Presence,
        Self::Usage,
        Self::Revoke,
        Self::Pause,
        Self::Limits,
        Self::Check,
    ];

    /// The name of the script's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Refresh => "refresh",
            Self::Release => "release",
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
            Self::Presence => text!("common.lua", "presence.lua"),
            Self::Usage => text!("common.lua", "usage.lua"),
            Self::Revoke => text!("common.lua", "grant.lua", "revoke.lua"),
            Self::Pause => text!("common.lua", "grant.lua", "pause.lua"),
            Self::Limits => text!("common.lua", "limits.lua"),
            Self::Check => text!("check.lua"),
        }
    }

    /// The ends of the names of a semaphore's keys, in the order in which the script takes the keys. A key of the store
    /// itself is named as a whole.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Acquire | Self::Release | Self::Revoke | Self::Pause => {
                &[":held", ":queue", ":alive", ":token"]
            }
            Self::Refresh => &[":held", ":token"],
            Self::Usage => &[":held", ":queue", ":alive"],
            Self::Presence | Self::Limits | Self::Check => &[""],
        }
    }
}
