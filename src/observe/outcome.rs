//! The values of the labels.

#![allow(
    dead_code,
    reason = "without some features some never occur, and none is shown"
)]

/// A label: each variant has the value beside it.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            pub(crate) const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }
    };
}

label! {
    /// The outcome of a request or a claim. [The module docs](super) explain each.
    Outcome {
        Admitted = "admitted",
        Degraded = "degraded",
        Exempt = "exempt",
        Full = "full",
        KeyClosed = "key_closed",
        TimedOut = "timed_out",
        QueueFull = "queue_full",
        Paused = "paused",
        Overloaded = "overloaded",
        Unavailable = "unavailable",
        Closed = "closed",
        Revoked = "revoked",
        Lost = "lost",
        Invalid = "invalid",
        Cancelled = "cancelled",
    }
}

label! {
    /// The kind of store that a claim is made to.
    Store {
        Memory = "memory",
        Redis = "redis",
        /// A custom store.
        Custom = "custom",
    }
}

label! {
    /// How a permit was lost.
    LostBy {
        /// Its lease ended, or the store forgot it.
        Lease = "lease",
        /// `with_max_hold`, `with_max_stall` or `end_after` ended it.
        Bound = "bound",
        /// An operator revoked it.
        Revoked = "revoked",
    }
}

label! {
    /// The use of units of a budget.
    BudgetUse {
        Reserved = "reserved",
        /// Settled, or the weight of a rate, or the estimate of a permit that was not settled.
        Spent = "spent",
        /// The permit has ended without using them.
        Freed = "freed",
        /// The permit was lost before it settled them, so they count as used.
        Lost = "lost",
    }
}

label! {
    /// How a call to a store's server ended.
    Answered {
        Ok = "ok",
        Timeout = "timeout",
        Error = "error",
    }
}

/// The kind of things that are counted under one name: the name is a policy, or for calls to a store's server the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Requests,
    /// Requests that are admitted although the policy would have refused them.
    Shadow,
    Claims(Store),
    Budget(Store),
    Calls(Store),
}
