//! The states of a lease, and the events that change them.
//!
//! | state | what is known |
//! |---|---|
//! | `Unsent` | no acquire was sent |
//! | `InDoubt` | an acquire was sent and has not been answered |
//! | `Queued` | the claim is in the queue |
//! | `Provisional` | granted from the queue, and not refreshed yet; ends when the waiter would count as dead |
//! | `Held` | granted, or refreshed |
//! | `AtRisk` | held, but the last refresh failed |
//! | `Degraded` | the store was unavailable, and the policy lets the owner go on without a lease |
//! | `Partial` | the same, and the server may have some of its units, but not all |
//! | `Lost` | the lease ended while the owner still runs; it may be granted again |
//! | `Displaced` | the same, and the server may have some of its units, but not all |
//! | `Refused` | the server refused the claim |
//! | `Released` | the owner has released the lease |
//! | `Freed` | released, and a release that was sent before the lease ended may have run without an answer |

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unsent,
    InDoubt,
    Queued,
    Provisional,
    Held,
    AtRisk,
    Degraded,
    Partial,
    Lost,
    Displaced,
    Refused,
    Released,
    Freed,
}

/// An event that may change the state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// An acquire is about to be sent.
    Sent,
    /// The acquire never left this process, or the server did not run it.
    NotSent,
    /// The server granted the claim.
    Granted,
    /// The server put the claim into the queue, or kept it there.
    Queued,
    /// A message says that the claim was granted from the queue.
    Notified,
    /// The server refused the claim, and removed it from the queue if it was there.
    Refused,
    /// A refresh found the lease held.
    Refreshed,
    /// A refresh was not answered.
    RefreshFailed,
    /// The deadline has passed, or a refresh did not find the only unit.
    Ended,
    /// A refresh did not find all units.
    Displaced,
    /// The lease has a new id, of which the server has nothing.
    Renewed,
    /// The policy admits the claim without the store.
    Admitted,
    /// As `Ended`, because the store was unavailable, and the policy lets the owner go on.
    Kept,
    /// As `Displaced`, likewise.
    KeptInPart,
    /// The owner released the lease.
    Released,
    /// A release that was sent before the lease ended may have run, but its answer is lost.
    ReleaseFailed,
}

impl Event {
    /// The event for an owner whom the policy lets go on.
    pub(super) fn kept(self) -> Self {
        match self {
            Self::Ended => Self::Kept,
            Self::Displaced => Self::KeptInPart,
            event => event,
        }
    }
}

impl State {
    /// The table of transitions; `None` where an event changes nothing.
    pub(super) fn next(self, event: Event) -> Option<Self> {
        use State::{
            AtRisk, Degraded, Displaced, Freed, Held, InDoubt, Lost, Partial, Provisional, Queued,
            Refused, Released, Unsent,
        };
        match (self, event) {
            // A released lease stays released.
            (Released, Event::ReleaseFailed) => Some(Freed),
            (Released | Freed, _) => None,
            (_, Event::Released) => Some(Released),
            (Unsent | Refused, Event::Sent) => Some(InDoubt),
            (InDoubt, Event::NotSent) => Some(Unsent),
            (Unsent | InDoubt | Queued | Refused | Lost | Degraded, Event::Granted) => Some(Held),
            (Unsent | InDoubt | Refused, Event::Queued) => Some(Queued),
            (InDoubt | Queued, Event::Notified) => Some(Provisional),
            (Unsent | InDoubt | Queued, Event::Refused) => Some(Refused),
            (Provisional | AtRisk, Event::Refreshed) => Some(Held),
            (Held, Event::RefreshFailed) => Some(AtRisk),
            (Provisional | Held | AtRisk, Event::Ended) | (Displaced, Event::Renewed) => Some(Lost),
            (Provisional | Held | AtRisk, Event::Displaced)
            | (Lost, Event::Displaced | Event::KeptInPart) => Some(Displaced),
            (Provisional | Held | AtRisk, Event::Kept)
            | (Unsent, Event::Admitted)
            | (Partial, Event::Renewed) => Some(Degraded),
            (Provisional | Held | AtRisk, Event::KeptInPart)
            | (Degraded, Event::Displaced | Event::KeptInPart) => Some(Partial),
            _ => None,
        }
    }

    /// Whether the lease has ended while the owner still runs.
    pub(super) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Displaced)
    }

    /// Whether the owner goes on without a lease.
    pub(super) fn is_degraded(self) -> bool {
        matches!(self, Self::Degraded | Self::Partial)
    }

    /// Whether the lease was granted or admitted and is not released, lost or not.
    pub(super) fn is_granted(self) -> bool {
        let is_held = matches!(self, Self::Provisional | Self::Held | Self::AtRisk);
        is_held || self.is_lost() || self.is_degraded()
    }

    pub(super) fn is_released(self) -> bool {
        matches!(self, Self::Released | Self::Freed)
    }

    /// Whether the server has nothing under its id, unless an acquire is unanswered.
    pub(super) fn is_unknown_to_the_server(self) -> bool {
        matches!(self, Self::Unsent | Self::Refused)
    }

    /// Whether the server may hold units or a queue position of the lease.
    pub(super) fn is_known_to_the_server(self) -> bool {
        !matches!(self, Self::Unsent | Self::Refused | Self::Degraded)
    }
}
