//! What carries commands to servers.

use crate::redis::{
    core::Failure,
    protocol::{Answer, Command, Message},
};
use std::{error::Error, future::pending, ops::Range, sync::Arc, time::Duration};

/// Connects to servers. It repeats nothing and follows nothing.
pub(in crate::redis) trait Transport: Send + Sync + 'static {
    type Connection: Connection;

    /// A connection of the current runtime to a server. `None`: there is none now.
    ///
    /// What the server sends to this process goes to `messages`, if there are any.
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

    /// Ready when the connection is broken.
    fn closed(&self) -> impl Future<Output = ()> + Send;
}

/// Takes the messages of a server.
pub(in crate::redis) type Messages = Arc<dyn Fn(Message) + Send + Sync>;
