//! Questions: the calls of operators and checks, which belong to no lease. [`proto::question`] decides where each is sent,
//! and when again.

use super::{
    driver::Session,
    error::{CallError, after, by},
    store::Store,
    transport::Replies,
};
use crate::observe::{Answered, Store::Redis as REDIS, called};
use proto::{
    core::Failure,
    question::{Attempt, Question, Recipient, Repeat},
    verbs::Fault,
};
use redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Where commands are sent, and when again.
#[derive(Clone, Copy)]
pub(super) enum To<'a> {
    Server(usize),
    /// The server of a key, wherever that has moved.
    Key(&'a str),
    /// As `Key`, but commands that may have run are not sent again.
    KeyOnce(&'a str),
}

/// The caller of commands, and how long it waits for the answer.
#[derive(Clone, Copy)]
pub(super) enum Caller {
    /// Takes a turn, and waits for the time of an operator's call from then on.
    Operator,
    /// Takes no turn, and waits until this time.
    Check(Instant),
}

impl Store {
    /// The deadline of an operator's call that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.budget()
    }

    /// The time that is left for one call: until the deadline, at most the timeout.
    fn left(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        left.min(self.settings.timeout)
    }

    /// The number of the server last known to own the key.
    pub(super) fn server_of(&self, key: &str) -> usize {
        self.driver.server_at(self.topology.slot(key))
    }

    /// Why a server was of no use, if that is known.
    pub(super) fn error(&self, server: usize) -> Option<CallError> {
        self.driver.error(server)?.downcast_ref().cloned()
    }

    /// This runtime's connection to a server.
    pub(super) async fn connection(
        &self,
        server: usize,
        until: Instant,
    ) -> Result<Arc<Session>, CallError> {
        let connection = self.driver.connection(server, until).await;
        let unknown = || CallError::unconnected(io::Error::from(io::ErrorKind::NotConnected));
        connection.ok_or_else(|| self.error(server).unwrap_or_else(unknown))
    }

    /// Sends a command, and reads the reply.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        to: To<'_>,
        question: Cmd,
        caller: Caller,
    ) -> Result<T, CallError> {
        let reply = only(self.call(to, vec![question], caller).await)?;
        from_redis_value(reply).map_err(|_| CallError::Reply)
    }

    /// Sends commands together, and then waits for replicas. With too few replicas each reply is an error.
    pub(super) async fn confirmed(
        &self,
        to: To<'_>,
        mut commands: Vec<Cmd>,
        caller: Caller,
    ) -> Replies {
        let replicas = self.settings.replicas;
        if replicas == 0 {
            return self.call(to, commands, caller).await;
        }
        let left = match caller {
            Caller::Operator => self.settings.timeout,
            Caller::Check(until) => self.left(until),
        };
        // Sent with the commands, so that it covers the server that runs them. Zero would mean no bound.
        let bound = (left / 2).as_millis().max(1) as u64;
        commands.push(cmd("WAIT").arg(replicas).arg(bound).take());
        let mut replies = self.call(to, commands, caller).await;
        let error = match replies.pop() {
            Some(Ok(Value::Int(have))) if have >= i64::from(replicas) => return replies,
            Some(Ok(Value::Int(have))) => {
                CallError::NotReplicated(have.try_into().unwrap_or_default())
            }
            // It has become a replica, so it does not wait for replicas.
            Some(Err(error)) if error.is_code(&["UNBLOCKED"]) => CallError::NotReplicated(0),
            Some(Err(error)) => error,
            Some(Ok(_)) | None => CallError::Reply,
        };
        // A command's own error is more precise, so it is kept.
        let replies = replies.into_iter();
        replies.map(|reply| reply.and(Err(error.clone()))).collect()
    }

    /// Sends commands together, until their outcome is final. Returns one reply for each command, in order.
    pub(super) async fn call(&self, to: To<'_>, commands: Vec<Cmd>, caller: Caller) -> Replies {
        let (_turn, until) = match caller {
            Caller::Operator => (Some(self.turns.take().await), self.deadline()),
            Caller::Check(until) => (None, until),
        };
        let slot = |key| Recipient::Slot(self.topology.slot(key));
        let mut question = match to {
            To::Server(server) => Question::new(Recipient::Server(server), Repeat::Always),
            To::Key(key) => Question::new(slot(key), Repeat::Always),
            To::KeyOnce(key) => Question::new(slot(key), Repeat::IfNotRun),
        };
        loop {
            let attempt = question.attempt(|slot| self.driver.server_at(slot));
            let sent = self.send(attempt, &commands, until).await;
            let (replies, outcome) = sent.unwrap_or_else(|error| {
                let failure = failure_of(&error);
                (vec![Err(error); commands.len()], Err(failure))
            });
            match question.pause_after(outcome) {
                Some(pause) if until > Instant::now() + pause => sleep(pause).await,
                _ => return replies,
            }
        }
    }

    /// Sends commands once. Returns their replies, and what these mean for the question.
    async fn send(
        &self,
        attempt: Attempt,
        commands: &[Cmd],
        until: Instant,
    ) -> Result<(Replies, Result<Vec<Fault>, Failure>), CallError> {
        let connection = self.connection(attempt.server, until).await?;
        let left = self.left(until);
        // `ASKING` applies to the next command only.
        let asking = attempt.asks.then(|| cmd("ASKING"));
        let asks = usize::from(attempt.asks);
        let sent = commands.iter().cloned();
        let sent = sent.flat_map(|command| asking.clone().into_iter().chain([command]));
        let replies = async {
            let replies = connection.request(sent.collect()).await.into_iter();
            Ok(replies.skip(asks).step_by(1 + asks).collect())
        };
        let replies: Replies = by(after(left), CallError::Timeout(left), replies).await?;
        let errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        let outcome = errors.map(|error| match error {
            CallError::Unavailable(_) => Err(Failure::NotConnected),
            error if error.is_unanswered() => Err(failure_of(error)),
            error => Ok(connection.fault(error)),
        });
        let outcome = outcome.collect();
        Ok((replies, outcome))
    }
}

/// Why a call has no answer.
fn failure_of(error: &CallError) -> Failure {
    match error {
        CallError::Timeout(_) => Failure::TimedOut,
        error if error.is_disconnect() => Failure::Broken,
        _ => Failure::NotConnected,
    }
}

/// The reply to the only command.
fn only(mut replies: Replies) -> Result<Value, CallError> {
    replies.pop().unwrap_or(Err(CallError::Reply))
}

/// The reply to the only command, whose call is counted.
pub(super) async fn counted(
    verb: &'static str,
    replies: impl Future<Output = Replies>,
) -> Result<Value, CallError> {
    let sent = Instant::now();
    let reply = only(replies.await);
    let answered = match &reply {
        Ok(_) => Answered::Ok,
        Err(CallError::Timeout(_)) => Answered::Timeout,
        Err(_) => Answered::Error,
    };
    called(REDIS, verb, 1, sent.elapsed(), answered);
    reply
}
