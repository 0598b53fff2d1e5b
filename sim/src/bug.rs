//! What is wrong with a first version of a core, one at a time.

/// Declares the bugs, and the list of them.
macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A bug that is planted in the naive core.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    /// An acquire without an answer is forgotten, not released.
    ForgetsUnanswered,
    /// A retry has a new id.
    RetriesWithNewId,
    /// A release without an answer is not sent again.
    ReleasesOnce,
    /// A release is given up while an acquire may run.
    ReleasesTooEarly,
    /// A holder is told that its permit is lost when an answer says so, and not at the end.
    LostAtAnswer,
    /// A permit is refreshed after its release.
    RefreshesReleased,
    /// A waiter that gives up stays in the queue.
    LeavesWaiter,
    /// A waiter polls after its claim was refused.
    PollsRefused,
    /// A message counts whatever its token and the time.
    BelievesStaleMessage,
    /// A grant by a message lasts a whole lease.
    TrustsProvisional,
    /// A lease is counted from the answer, and not from the sending.
    CountsFromAnswer,
    /// An acquire may run at any time.
    NoDeadline,
    /// The last claim of a batch is not sent, and waits for an answer.
    DropsLast,
    /// A claim is tried for as long as it takes.
    NoBudget,
    /// A claim is called refused for want of room when the server does not answer.
    SaysFull,
    /// A claim is sent again while its call is in flight.
    SendsTwice,
    /// What is due stays due while there is no connection.
    StaysDue,
    /// A waiter that polls again comes with a new id, so at the end of the queue.
    RejoinsQueue,
    /// A lease that a refresh does not find is refreshed again.
    IgnoresLoss,
    /// A release waits for the next tick of a timer.
    ReleasesLate,
}
