//! The values of the labels.

#![allow(dead_code, reason = "without some features some never occur")]

/// The outcome of a request or a claim. [The module docs](super) explain each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Degraded,
    Exempt,
    Full,
    TimedOut,
    QueueFull,
    Overloaded,
    Unavailable,
    Closed,
    Revoked,
    Lost,
    Invalid,
    Cancelled,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Degraded => "degraded",
            Self::Exempt => "exempt",
            Self::Full => "full",
            Self::TimedOut => "timed_out",
            Self::QueueFull => "queue_full",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Closed => "closed",
            Self::Revoked => "revoked",
            Self::Lost => "lost",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The kind of store that a claim is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Redis,
    /// A store by the user.
    Custom,
}

impl Store {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Custom => "custom",
        }
    }
}

/// How a permit was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LostBy {
    /// Its lease ended, or the store forgot it.
    Lease,
    /// `with_max_hold`, `with_max_stall` or `end_after` ended it.
    Bound,
    /// An operator revoked it.
    Revoked,
}

impl LostBy {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Bound => "bound",
            Self::Revoked => "revoked",
        }
    }
}

/// How a call to a store's server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Ok,
    Timeout,
    Error,
}

impl Answered {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}
