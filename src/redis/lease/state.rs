//! The states of a lease, and what moves it from one to the next.
//!
//! | state | what is known |
//! |---|---|
//! | `Unsent` | no acquire was sent |
//! | `InDoubt` | an acquire was sent, and not answered yet |
//! | `Queued` | the server has it in the queue |
//! | `Provisional` | granted from the queue; ends with the waiter's heartbeat until it is refreshed |
//! | `Held` | granted, or refreshed |
//! | `AtRisk` | held, but the last refresh failed |
//! | `Lost` | the lease ended while the owner still runs; it may be granted again |
//! | `Refused` | the server refused it |
//! | `Released` | the owner is done with it |

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unsent,
    InDoubt,
    Queued,
    Provisional,
    Held,
    AtRisk,
    Lost,
    Refused,
    Released,
}

/// What moves a lease on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// An acquire is about to be sent.
    Sent,
    /// It never left this process.
    NotSent,
    /// The server granted it.
    Granted,
    /// The server has it in the queue.
    Queued,
    /// A message says that it was granted from the queue.
    Notified,
    /// The server has refused it, and removed it from the queue if it was there.
    Refused,
    /// A refresh found it held.
    Refreshed,
    /// A refresh was not answered.
    RefreshFailed,
    /// Its deadline has passed, or a refresh did not find it.
    Ended,
    /// The owner is done with it.
    Released,
}

impl State {
    /// The table of transitions; `None` where an event changes nothing.
    pub(super) fn next(self, event: Event) -> Option<Self> {
        use State::{AtRisk, Held, InDoubt, Lost, Provisional, Queued, Refused, Released, Unsent};
        match (self, event) {
            // A released lease stays released.
            (Released, _) => None,
            (_, Event::Released) => Some(Released),
            (Unsent | Refused, Event::Sent) => Some(InDoubt),
            (InDoubt, Event::NotSent) => Some(Unsent),
            (Unsent | InDoubt | Queued | Refused | Lost, Event::Granted) => Some(Held),
            (Unsent | InDoubt | Refused, Event::Queued) => Some(Queued),
            (InDoubt | Queued, Event::Notified) => Some(Provisional),
            (Unsent | InDoubt | Queued, Event::Refused) => Some(Refused),
            (Provisional | AtRisk, Event::Refreshed) => Some(Held),
            (Held, Event::RefreshFailed) => Some(AtRisk),
            (Provisional | Held | AtRisk, Event::Ended) => Some(Lost),
            _ => None,
        }
    }

    /// Whether the server may have something of it.
    pub(super) fn is_known_to_the_server(self) -> bool {
        !matches!(self, Self::Unsent | Self::Refused)
    }
}
