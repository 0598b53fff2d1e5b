//! Questions: operators' calls and checks, which belong to no lease. [`proto::question`] decides their routes and
//! retries.

use super::{
    driver::Session,
    error::{CallError, deadline_after, finish_by},
    store::Store,
    transport::Replies,
    turns::Turn,
};
use crate::observe::{Answered, Store::Redis as REDIS, called};
use proto::{
    core::CallFailure,
    question::{Attempt, Question, Recipient, Repeat},
    verbs::CommandFault,
};
use redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// No attempt begins with less time than this left before the deadline: it would time out, and hide why the earlier
/// attempts failed.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(50);

/// The route of commands, and whether they may run twice.
#[derive(Clone, Copy)]
pub(super) enum To<'a> {
    Server(usize),
    /// The current server of a key. At most one of the commands may name keys, because a redirect of one sends all to
    /// the other server.
    Key(&'a str),
    /// Like `Key`, but commands that may have run are not sent again.
    KeyOnce(&'a str),
}

/// One of the slots for operators' calls (see `turns`), and the deadline of the calls in it. Its drop frees the slot.
pub(super) struct OperatorTurn<'a> {
    _turn: Turn<'a>,
    pub(super) deadline: Instant,
}

impl Store {
    /// Waits for a turn. The deadline counts from its start.
    pub(super) async fn operator_turn(&self) -> OperatorTurn<'_> {
        OperatorTurn {
            _turn: self.turns.take().await,
            deadline: Instant::now() + self.settings.call_time(),
        }
    }

    /// The timeout of one call, shortened to the time left until the deadline.
    fn call_timeout(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        left.min(self.settings.timeout)
    }

    /// The number of the server last known to own the key.
    pub(super) fn server_of(&self, key: &str) -> usize {
        self.driver.server_at(self.topology.slot(key))
    }

    /// The last known failure of a server.
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

    /// Returns a connection that has just answered a `PING`. A connection that closed while idle may look open until it
    /// is used, and the command that fails on it may have run, which is harmless for a `PING`. If no connection answers
    /// by the deadline, the error is that of a failed attempt to connect, because no other command was sent.
    async fn tested_connection(
        &self,
        server: usize,
        until: Instant,
    ) -> Result<Arc<Session>, CallError> {
        loop {
            let connection = self.connection(server, until).await?;
            let left = self.call_timeout(until);
            let ping = async { only(connection.request(vec![cmd("PING")]).await) };
            match finish_by(deadline_after(left), CallError::Timeout(left), ping).await {
                Err(error) if error.is_unanswered() => {
                    if Instant::now() >= until {
                        return Err(CallError::unconnected(io::Error::from(
                            io::ErrorKind::TimedOut,
                        )));
                    }
                }
                _ => return Ok(connection),
            }
        }
    }

    /// Sends a command, and reads the reply.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        to: To<'_>,
        command: Cmd,
        until: Instant,
    ) -> Result<T, CallError> {
        let reply = only(self.call(to, vec![command], until).await)?;
        from_redis_value(reply).map_err(|_| CallError::Reply)
    }

    /// Sends commands together, and waits until enough replicas have their writes. If too few replicas have them, every
    /// reply is an error.
    pub(super) async fn confirmed(
        &self,
        to: To<'_>,
        mut commands: Vec<Cmd>,
        until: Instant,
    ) -> Replies {
        let replicas = self.settings.replicas;
        if replicas == 0 {
            return self.call(to, commands, until).await;
        }
        // `WAIT` is sent over the same connection, so that it covers the writes of the commands. It would wait without
        // end for a bound of zero.
        let bound = (self.call_timeout(until) / 2).as_millis().max(1) as u64;
        commands.push(cmd("WAIT").arg(replicas).arg(bound).take());
        let mut replies = self.call(to, commands, until).await;
        let error = match replies.pop() {
            Some(Ok(Value::Int(have))) if have >= i64::from(replicas) => return replies,
            Some(Ok(Value::Int(have))) => {
                CallError::NotReplicated(have.try_into().unwrap_or_default())
            }
            // The server became a replica while it waited.
            Some(Err(error)) if error.is_code(&["UNBLOCKED"]) => CallError::NotReplicated(0),
            Some(Err(error)) => error,
            Some(Ok(_)) | None => CallError::Reply,
        };
        // A command's own error is more precise, so it is kept.
        let replies = replies.into_iter();
        replies.map(|reply| reply.and(Err(error.clone()))).collect()
    }

    /// Sends commands together, and repeats that until their outcome is final or the deadline is near. Returns one
    /// reply to each command, in order.
    pub(super) async fn call(&self, to: To<'_>, commands: Vec<Cmd>, until: Instant) -> Replies {
        let slot = |key| Recipient::Slot(self.topology.slot(key));
        let (recipient, repeat) = match to {
            To::Server(server) => (Recipient::Server(server), Repeat::EvenIfRun),
            To::Key(key) => (slot(key), Repeat::EvenIfRun),
            To::KeyOnce(key) => (slot(key), Repeat::IfNotRun),
        };
        let mut question = Question::new(recipient, repeat);
        loop {
            let attempt = question.attempt(|slot| self.driver.server_at(slot));
            let connection = match repeat {
                Repeat::EvenIfRun => self.connection(attempt.server, until).await,
                Repeat::IfNotRun => self.tested_connection(attempt.server, until).await,
            };
            let (replies, outcome) = match connection {
                Err(error) => (
                    vec![Err(error); commands.len()],
                    Err(CallFailure::NotConnected),
                ),
                Ok(connection) => {
                    let left = self.call_timeout(until);
                    let replies = send(&connection, attempt, &commands, left).await;
                    let outcome = outcome(&connection, &replies);
                    (replies, outcome)
                }
            };
            match question.retry_delay_after(outcome) {
                Some(delay) if until > Instant::now() + delay + MIN_ATTEMPT_TIME => {
                    sleep(delay).await;
                }
                _ => return replies,
            }
        }
    }
}

/// Sends commands once.
async fn send(connection: &Session, attempt: Attempt, commands: &[Cmd], left: Duration) -> Replies {
    // `ASKING` applies to the next command only.
    let asking = attempt.sends_asking.then(|| cmd("ASKING"));
    let replies_per_command = 1 + usize::from(attempt.sends_asking);
    let sent = commands.iter().cloned();
    let sent = sent.flat_map(|command| asking.clone().into_iter().chain([command]));
    let replies = async { Ok(connection.request(sent.collect()).await) };
    match finish_by(deadline_after(left), CallError::Timeout(left), replies).await {
        // The reply to `ASKING` comes before that of its command.
        Ok(replies) => replies
            .into_iter()
            .skip(replies_per_command - 1)
            .step_by(replies_per_command)
            .collect(),
        Err(error) => vec![Err(error); commands.len()],
    }
}

/// Classifies replies. Returns the faults of the commands that failed, or the failure that left all without answers.
fn outcome(connection: &Session, replies: &Replies) -> Result<Vec<CommandFault>, CallFailure> {
    let errors = replies.iter().filter_map(|reply| reply.as_ref().err());
    let faults = errors.map(|error| match error {
        CallError::Timeout(_) => Err(CallFailure::TimedOut),
        CallError::Unavailable(_) | CallError::PausedClock => Err(CallFailure::NotConnected),
        error if error.is_disconnect() => Err(CallFailure::Broken),
        // With `cluster-require-full-coverage` a cluster refuses all slots until a failover is over.
        error if error.is_code(&["CLUSTERDOWN"]) => Ok(CommandFault::Unserved),
        error => Ok(connection.fault(error)),
    });
    faults.collect()
}

/// The reply of a call with one command.
pub(super) fn only(mut replies: Replies) -> Result<Value, CallError> {
    replies.pop().unwrap_or(Err(CallError::Reply))
}

/// Reports an operator's script call to the metrics.
pub(super) async fn with_metrics(
    verb: &'static str,
    call: impl Future<Output = Result<Value, CallError>>,
) -> Result<Value, CallError> {
    let sent = Instant::now();
    let reply = call.await;
    let answered = match &reply {
        Ok(_) => Answered::Ok,
        Err(CallError::Timeout(_)) => Answered::Timeout,
        Err(_) => Answered::Error,
    };
    called(REDIS, verb, 1, sent.elapsed(), answered);
    reply
}
