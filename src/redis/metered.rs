//! Counts the calls to servers.

use super::report::{Line, Reports};
use crate::{
    observe::{Answered, Store::Redis as REDIS, called},
    redis::{
        core::Failure,
        driver::{Cause, Connection, Messages, Slots, Transport},
        protocol::{Answer, Command, Group},
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A transport whose calls are counted.
pub(super) struct Metered<T> {
    pub(super) transport: T,
    pub(super) reports: Reports,
}

pub(super) struct MeteredConnection<C> {
    connection: Arc<C>,
    /// Where the keeper's thread reports.
    reports: Option<Reports>,
}

impl<C> MeteredConnection<C> {
    pub(super) fn inner(&self) -> &Arc<C> {
        &self.connection
    }
}

impl<T: Transport> Transport for Metered<T> {
    type Connection = MeteredConnection<T::Connection>;

    async fn connect(&self, server: usize, messages: Option<Messages>) -> Option<Self::Connection> {
        // Only the thread takes messages.
        let reports = messages.is_some().then(|| self.reports.clone());
        let connection = self.transport.connect(server, messages).await?;
        Some(MeteredConnection {
            connection: Arc::new(connection),
            reports,
        })
    }

    async fn slots(&self, version: u64) -> (u64, Slots) {
        self.transport.slots(version).await
    }

    fn address(&self, server: usize) -> String {
        self.transport.address(server)
    }

    fn error(&self, server: usize) -> Option<Cause> {
        self.transport.error(server)
    }

    fn is_denied(&self, server: usize) -> bool {
        self.transport.is_denied(server)
    }
}

impl<C: Connection> Connection for MeteredConnection<C> {
    async fn call(&self, commands: Vec<Command>, left: Duration) -> Result<Vec<Answer>, Failure> {
        let mut counted = Counted {
            reports: self.reports.as_ref(),
            commands: commands.iter().map(what).collect(),
            left,
            sent: Instant::now(),
        };
        let reply = self.connection.call(commands, left).await;
        counted.count(&reply);
        reply
    }

    async fn closed(&self) {
        self.connection.closed().await;
    }
}

/// The verb of a command, and how many claims or permits it names.
fn what(command: &Command) -> (&'static str, usize) {
    match command {
        Command::Acquire { claims, .. } => ("acquire", claims.len()),
        Command::Refresh { groups, .. } => ("refresh", permits(groups)),
        Command::Release { groups, .. } => ("release", permits(groups)),
        Command::Presence { .. } | Command::Introduce | Command::Leave => ("presence", 1),
        Command::Asking => ("asking", 1),
        Command::Confirm { .. } => ("wait", 1),
    }
}

fn permits(groups: &[Group]) -> usize {
    groups.iter().map(|group| group.permits.len()).sum()
}

/// A call in flight. One that is dropped when its time is over counts as timed out.
struct Counted<'a> {
    reports: Option<&'a Reports>,
    commands: Vec<(&'static str, usize)>,
    left: Duration,
    sent: Instant,
}

impl Counted<'_> {
    fn count(&mut self, reply: &Result<Vec<Answer>, Failure>) {
        let of = |at| match reply {
            Ok(answers) => match answers.get(at) {
                Some(Answer::Failed(_)) | None => Answered::Error,
                Some(_) => Answered::Ok,
            },
            Err(Failure::TimedOut) => Answered::Timeout,
            Err(_) => Answered::Error,
        };
        self.tell(of);
    }

    fn tell(&mut self, answered: impl Fn(usize) -> Answered) {
        let took = self.sent.elapsed();
        for (at, (verb, size)) in self.commands.drain(..).enumerate() {
            let answered = answered(at);
            match self.reports {
                None => called(REDIS, verb, took, [(size, answered)].into_iter()),
                Some(reports) => reports.line(Line::Called {
                    verb,
                    took,
                    size,
                    answered,
                }),
            }
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.sent.elapsed() >= self.left {
            self.tell(|_| Answered::Timeout);
        }
    }
}
