//! What the driver needs from outside: what carries commands to servers, and who learns the news.

use crate::{
    observe::{Answered, LostBy},
    semaphore::Policy,
};
use proto::{
    core::{Failure, LimitsEvent, Outage},
    verbs::{Answer, Command, Message},
};
use std::{error::Error, future::pending, ops::Range, sync::Arc, time::Duration};

/// Connects to servers. It repeats nothing and follows nothing.
pub(in crate::redis) trait Transport: Send + Sync + 'static {
    type Connection: Connection;

    /// A connection of the current runtime to a server. `None`: there is none now.
    ///
    /// What the server sends to this process goes to `messages`, if there are any. The connection has answered
    /// once, so the server is not stalled.
    fn connect(
        &self,
        server: usize,
        messages: Option<Messages>,
    ) -> impl Future<Output = Option<Self::Connection>> + Send;

    /// The map of slots, once it is another than the one of this version, with its own version. The keeper's thread
    /// always waits for it.
    fn slots(&self, _version: u64) -> impl Future<Output = (u64, Slots)> + Send {
        pending()
    }

    /// Where a server listens, for people.
    fn address(&self, server: usize) -> String {
        server.to_string()
    }

    /// What went wrong last with a server since a connection was last made: with connecting, or with a command.
    fn error(&self, _server: usize) -> Option<Cause> {
        None
    }

    /// Whether the last connection was refused by the server itself, as to a wrong password.
    fn is_denied(&self, _server: usize) -> bool {
        false
    }
}

/// Which slots are on which servers.
pub(in crate::redis) type Slots = Vec<(Range<usize>, usize)>;

/// Why a server was of no use.
pub(in crate::redis) type Cause = Arc<dyn Error + Send + Sync>;

/// A connection to a server. It is driven by the runtime that made it.
pub(in crate::redis) trait Connection: Send + Sync + 'static {
    /// Sends commands together, in this order, and returns an answer to each. `left` is how long an answer
    /// counts. Calls arrive in the order in which these futures are polled first.
    fn call(
        &self,
        commands: Vec<Command>,
        left: Duration,
    ) -> impl Future<Output = Result<Vec<Answer>, Failure>> + Send;

    /// Whether nothing is sent over it any more, so that it is about to close.
    fn is_over(&self) -> bool {
        false
    }

    /// Ready when the connection is broken.
    fn closed(&self) -> impl Future<Output = ()> + Send;
}

/// Takes the messages of a server.
pub(in crate::redis) type Messages = Arc<dyn Fn(Message) + Send + Sync>;

/// What only the transport can tell.
#[derive(Debug)]
pub(in crate::redis) enum News {
    /// The keeper's thread has ended by a panic. Another one starts.
    KeeperDied,
    /// The core has panicked. The store is closed.
    CoreDied,
    /// A runtime has a connection to the server at this address, and had one before or not.
    Connected(String, bool),
    NotConnected(Option<Cause>),
    /// Claims are decided without a server, or by it again.
    Outage(Outage, Option<Cause>),
    /// Of the limits that operators set.
    Limits(LimitsEvent),
    /// A level of a permit is lost, which had this token.
    Lost(Policy, u64, LostBy),
    /// A level of a permit goes on without its server. With the name of its semaphore, and whether it was granted
    /// before.
    Degraded(Policy, Arc<str>, bool),
    /// A command of so many claims or permits has ended.
    Called {
        verb: &'static str,
        size: usize,
        took: Duration,
        answered: Answered,
        /// Whether the keeper's thread has carried it.
        by_thread: bool,
    },
}

/// Learns the news. It must not block.
pub(in crate::redis) type Observer = Box<dyn Fn(News) + Send + Sync>;
