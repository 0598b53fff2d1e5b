//! What a store sends beside what its core decides: what operators ask, and checks.

use super::{
    driver::Session,
    error::{Error, after, by},
    store::Store,
    transport::Replies,
};
use crate::observe::{Answered, Store::Redis as REDIS, called};
use redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The pause before commands are sent again: their keys are just moving, or the end of a broken connection was not
/// noticed yet.
const PAUSE: Duration = Duration::from_millis(20);

/// Where commands are sent.
#[derive(Clone, Copy)]
pub(super) enum To<'a> {
    Server(usize),
    /// The server of a key, wherever that has moved.
    Key(&'a str),
}

/// How they are sent.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) deadline: Instant,
    /// How many replicas must have what was written.
    pub(super) replicas: u32,
    /// Whether they are sent again if they may have run, and have no answer.
    pub(super) may_repeat: bool,
}

impl Terms {
    /// Of commands that change nothing.
    pub(super) fn read(deadline: Instant) -> Self {
        Self {
            deadline,
            replicas: 0,
            may_repeat: true,
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Store {
    /// How an operator's question is sent.
    pub(super) fn terms(&self) -> Terms {
        Terms::read(Instant::now() + self.settings.budget())
    }

    /// The number of the server that is believed to have a key.
    pub(super) fn server_of(&self, key: &str) -> usize {
        self.driver.server_at(self.topology.slot(key))
    }

    /// Why a server was of no use, if that is known.
    pub(super) fn error(&self, server: usize) -> Option<Error> {
        self.driver.error(server)?.downcast_ref().cloned()
    }

    /// This runtime's connection to a server.
    pub(super) async fn connection(
        &self,
        server: usize,
        until: Instant,
    ) -> Result<Arc<Session>, Error> {
        let connection = self.driver.connection(server, until).await;
        let unknown = || Error::unconnected(io::Error::from(io::ErrorKind::NotConnected));
        connection.ok_or_else(|| self.error(server).unwrap_or_else(unknown))
    }

    /// Sends a command, reads the reply, and counts that.
    pub(super) async fn request(
        &self,
        verb: &'static str,
        (key, command): (&str, Cmd),
        terms: Terms,
    ) -> Result<Value, Error> {
        let sent = Instant::now();
        let reply = self.ask(To::Key(key), command, terms).await;
        let answered = match &reply {
            Ok(_) => Answered::Ok,
            Err(Error::Timeout(_)) => Answered::Timeout,
            Err(_) => Answered::Error,
        };
        called(REDIS, verb, 1, sent.elapsed(), answered);
        reply
    }

    /// Sends a command, and reads the reply.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        to: To<'_>,
        question: Cmd,
        terms: Terms,
    ) -> Result<T, Error> {
        let mut replies = self.call(to, vec![question], terms).await?;
        let reply = replies.pop().ok_or(Error::Reply)??;
        from_redis_value(reply).map_err(|_| Error::Reply)
    }

    /// Sends commands. Their replies are the last ones.
    pub(super) async fn call(
        &self,
        to: To<'_>,
        commands: Vec<Cmd>,
        terms: Terms,
    ) -> Result<Replies, Error> {
        let (mut server, mut asking) = match to {
            To::Server(server) => (server, None),
            To::Key(key) => (self.server_of(key), None),
        };
        loop {
            let sent = asking.into_iter().chain(commands.clone());
            let replies = self.send(server, sent.collect(), terms).await;
            let last = replies.as_ref().map(|replies| replies.last());
            let redirect = match (last, to) {
                (Err(error), _) if error.is_unanswered() && terms.may_repeat => None,
                (Ok(Some(Err(error))), To::Key(_)) if error.is_moving() => error.redirect(),
                _ => return replies,
            };
            if terms.left() <= PAUSE {
                return replies;
            }
            let next = redirect.and_then(|(address, _)| self.topology.server_at(address, server));
            asking = redirect.and_then(|(_, is_moving)| is_moving.then(|| cmd("ASKING")));
            server = next.unwrap_or(server);
            sleep(PAUSE).await;
        }
    }

    /// Sends commands once.
    async fn send(
        &self,
        server: usize,
        mut commands: Vec<Cmd>,
        terms: Terms,
    ) -> Result<Replies, Error> {
        let connection = self.connection(server, terms.deadline).await?;
        let left = terms.left().min(self.settings.timeout);
        if terms.replicas > 0 {
            // On their connection, so that it speaks of the very server that runs them. Zero would be no bound.
            let bound = (left / 2).as_millis().max(1) as u64;
            commands.push(cmd("WAIT").arg(terms.replicas).arg(bound).take());
        }
        let replies = by(
            after(left),
            Error::Timeout(left),
            connection.request(commands),
        )
        .await?;
        Ok(match terms.replicas {
            0 => replies,
            replicas => confirmed(replies, replicas),
        })
    }
}

/// Takes the reply to `WAIT` away. Unless enough replicas have what was written, no answer counts.
fn confirmed(mut replies: Replies, replicas: u32) -> Replies {
    let error = match replies.pop() {
        Some(Ok(Value::Int(have))) if have >= i64::from(replicas) => return replies,
        Some(Ok(Value::Int(have))) => Error::NotReplicated(have.try_into().unwrap_or_default()),
        // It has become a replica, so it does not wait for replicas.
        Some(Err(error)) if error.is_code(&["UNBLOCKED"]) => Error::NotReplicated(0),
        Some(Err(error)) => error,
        Some(Ok(_)) | None => Error::Reply,
    };
    // An error says more.
    let unconfirmed = replies
        .into_iter()
        .map(|reply| reply.and(Err(error.clone())));
    unconfirmed.collect()
}
