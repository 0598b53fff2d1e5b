//! The interface of the driver to the outside: connections to servers, and an observer of news.

use crate::{
    observe::{Answered, LostBy},
    semaphore::Policy,
};
use proto::{
    core::{CallFailure, LimitsEvent, Outage, SlotRanges},
    verbs::{Answer, Command, Message},
};
use std::{error::Error, future::pending, sync::Arc, time::Duration};

/// Connects to servers. Does not retry, and follows no redirect.
pub(in crate::redis) trait Transport: Send + Sync + 'static {
    type Connection: ServerConnection;

    /// Makes a connection of the current runtime to a server. Returns `None` if that fails.
    ///
    /// `messages` receives the messages of the server to this process. The returned connection has answered
    /// once, so its server is not stalled.
    fn connect(
        &self,
        server: usize,
        messages: Option<Messages>,
    ) -> impl Future<Output = Option<Self::Connection>> + Send;

    /// Waits for a map of slots with another version than this one. Returns its version and the map. The keeper's
    /// thread then waits for the next one.
    fn slots(&self, _version: u64) -> impl Future<Output = (u64, SlotRanges)> + Send {
        pending()
    }

    /// The address of a server, for people.
    fn address(&self, server: usize) -> String {
        server.to_string()
    }

    /// The last error of a server, of an attempt to connect or of a command, since a connection was last made.
    fn error(&self, _server: usize) -> Option<Cause> {
        None
    }

    /// True if the server itself has refused the last connection, for example because of a wrong password.
    fn is_denied(&self, _server: usize) -> bool {
        false
    }
}

/// The reason why a server did not work.
pub(in crate::redis) type Cause = Arc<dyn Error + Send + Sync>;

/// A connection to a server. It is driven by the runtime that made it.
pub(in crate::redis) trait ServerConnection: Send + Sync + 'static {
    /// Sends commands together, in this order, and returns an answer to each. An answer counts if it comes within
    /// `left`. Calls arrive in the order in which these futures are polled first.
    fn call(
        &self,
        commands: Vec<Command>,
        left: Duration,
    ) -> impl Future<Output = Result<Vec<Answer>, CallFailure>> + Send;

    /// True if the connection is about to close, and takes no more calls.
    fn is_over(&self) -> bool {
        false
    }

    /// Ready when the connection is broken.
    fn closed(&self) -> impl Future<Output = ()> + Send;
}

/// Takes the messages of a server.
pub(in crate::redis) type Messages = Arc<dyn Fn(Message) + Send + Sync>;

/// News for operators.
#[derive(Debug)]
pub(in crate::redis) enum News {
    /// The keeper's thread has ended by a panic. Another one starts.
    KeeperDied,
    /// The core has panicked. The store is closed.
    CoreDied,
    /// A runtime has connected to the server at this address. True if it was connected before.
    Connected(String, bool),
    NotConnected(Option<Cause>),
    /// An outage of a server has begun or ended.
    Outage(Outage, Option<Cause>),
    /// A change to the reported limits of operators.
    Limits(LimitsEvent),
    /// A level of a permit is lost. The number is its token.
    Lost(Policy, u64, LostBy),
    /// A level of a permit is held without its server. The name is that of its semaphore. True if the server had
    /// granted it.
    Degraded(Policy, Arc<str>, bool),
    /// A command has ended. `size` is the number of its claims or permits.
    Called {
        verb: &'static str,
        size: usize,
        took: Duration,
        answered: Answered,
        /// True if the keeper's thread has sent it.
        by_thread: bool,
    },
}

/// Receives news. Must not block.
pub(in crate::redis) type Observer = Box<dyn Fn(News) + Send + Sync>;
