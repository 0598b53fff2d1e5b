//! redis-rs: commands as runs of scripts, and replies as answers.
//!
//! A run is sent as `EVAL` first on a connection, and as `EVALSHA` from then on. A server that does not know a
//! script has lost it since, as by `SCRIPT FLUSH`; then the next run is an `EVAL` again. The one that was not run
//! is not repeated here, because others that were sent after it on the connection may have run, and the core counts
//! on their order: a release behind an acquire is the last word. It is answered as not run, and the core sends again
//! what is still wanted.

use super::transport::{Cause, Connection, Messages, Transport};
use crate::{
    redis::{
        core::Failure,
        error::Error,
        protocol::{Answer, Command, Fault, Form, Message, Owner, Script, Sink, Verb, described},
        transport::{Direct, Subscription},
    },
    semaphore::Process,
    sync::Mutex,
};
use redis::{Client, Cmd, RedisWrite, Value};
use std::{
    fmt,
    future::pending,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::select;

static SCRIPTS: LazyLock<[Script; Verb::ALL.len()]> = LazyLock::new(|| Verb::ALL.map(Script::of));

/// One server.
pub(in crate::redis) struct Wire {
    client: Client,
    owner: Arc<Owner>,
    cause: Arc<Mutex<Option<Error>>>,
}

impl Wire {
    pub(in crate::redis) fn new(
        client: Client,
        prefix: String,
        process: Arc<str>,
        lease: Duration,
    ) -> Self {
        let owner = Owner {
            process,
            lease_ms: lease.as_millis() as u64,
            prefix,
            about: described(&Process::current()),
        };
        Self {
            client,
            owner: Arc::new(owner),
            cause: Arc::default(),
        }
    }

    /// Subscribed before anything is sent, so that no message is missed.
    async fn open(&self, messages: Option<Messages>) -> Result<Session, Error> {
        let direct = Direct::open(&self.client).await?;
        let subscription = match messages {
            Some(messages) => {
                let channel = self.owner.channel();
                Some((Subscription::open(&self.client, &channel).await?, messages))
            }
            None => None,
        };
        Ok(Session {
            direct,
            subscription: Mutex::new(subscription),
            owner: Arc::clone(&self.owner),
            is_known: Default::default(),
            cause: Arc::clone(&self.cause),
        })
    }
}

impl Transport for Wire {
    type Connection = Session;

    async fn connect(&self, _: usize, messages: Option<Messages>) -> Option<Session> {
        let is_of_thread = messages.is_some();
        let opened = self.open(messages).await;
        let error = opened.as_ref().err().cloned();
        // What it says to the thread it may say only later to others.
        if error.is_some() || is_of_thread {
            *self.cause.lock() = error;
        }
        opened.ok()
    }

    fn address(&self, _: usize) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    fn error(&self, _: usize) -> Option<Cause> {
        let cause = self.cause.lock().clone();
        cause.map(|cause| Arc::new(cause) as _)
    }

    fn is_denied(&self, _: usize) -> bool {
        let cause = self.cause.lock();
        cause.as_ref().is_some_and(|cause| !cause.is_unavailable())
    }
}

/// A connection of a runtime.
pub(in crate::redis) struct Session {
    direct: Direct,
    /// The thread's. `None`: it is being received.
    subscription: Mutex<Option<(Subscription, Messages)>>,
    owner: Arc<Owner>,
    /// Whether the server knows each script, as far as is known.
    is_known: [AtomicBool; Verb::ALL.len()],
    cause: Arc<Mutex<Option<Error>>>,
}

impl Connection for Session {
    async fn call(&self, commands: Vec<Command>, left: Duration) -> Result<Vec<Answer>, Failure> {
        let (verbs, runs) = commands.iter().map(|command| self.run(command)).unzip();
        let unanswered = Unanswered {
            cause: &self.cause,
            sent: Instant::now(),
            left,
        };
        let replies = self.direct.call(runs).await;
        unanswered.answered();
        let verbs: Vec<Verb> = verbs;
        let replies = commands.iter().zip(verbs).zip(replies);
        let answers = replies.map(|((command, verb), reply)| self.answer(command, verb, reply));
        answers.collect()
    }

    async fn closed(&self) {
        let subscription = self.subscription.lock().take();
        let received = async {
            match subscription {
                Some((subscription, messages)) => {
                    let take = |text: &str| Message::read(text).into_iter().for_each(&*messages);
                    subscription.receive(take).await;
                }
                None => pending().await,
            }
        };
        select! {
            () = self.direct.closed() => {}
            () = received => {}
        }
    }
}

impl Session {
    fn run(&self, command: &Command) -> (Verb, Cmd) {
        let mut run = Run {
            is_known: &self.is_known,
            verb: Verb::Presence,
            cmd: Cmd::new(),
        };
        command.encode(&self.owner, &mut run);
        (run.verb, run.cmd)
    }

    fn answer(
        &self,
        command: &Command,
        verb: Verb,
        reply: Result<Value, Error>,
    ) -> Result<Answer, Failure> {
        let answer = reply.and_then(|reply| command.decode(&reply).ok_or(Error::Reply));
        let error = match answer {
            Ok(answer) => {
                if let (Command::Confirm { replicas, .. }, Answer::Replicas(have)) =
                    (command, &answer)
                    && have < replicas
                {
                    *self.cause.lock() = Some(Error::NotReplicated(*have));
                }
                return Ok(answer);
            }
            Err(error) if error.is_no_script() => {
                self.is_known[verb as usize].store(false, Relaxed);
                return Ok(Answer::NotRun);
            }
            Err(error) => error,
        };
        let answer = match error.is_disconnect() {
            true => Err(Failure::Broken),
            false => Ok(Answer::Failed(match error.is_unavailable() {
                true => Fault::Unavailable,
                false => Fault::Mistake,
            })),
        };
        *self.cause.lock() = Some(error);
        answer
    }
}

/// A run that is being written.
struct Run<'a> {
    is_known: &'a [AtomicBool; Verb::ALL.len()],
    verb: Verb,
    cmd: Cmd,
}

impl Sink for Run<'_> {
    fn begin(&mut self, verb: Verb, keys: usize, args: usize) {
        /// About the length of an id, and of a key.
        const ITEM: usize = 56;
        let form = match self.is_known[verb as usize].swap(true, Relaxed) {
            true => Form::Hash,
            false => Form::Source,
        };
        let items = keys + args;
        let script = &SCRIPTS[verb as usize];
        (self.verb, self.cmd) = (verb, script.call(form, items + 3, items * ITEM));
        self.cmd.arg(keys);
    }

    fn plain(&mut self, words: &[&dyn fmt::Display]) {
        words.iter().for_each(|word| self.add(word));
    }

    fn add(&mut self, item: impl fmt::Display) {
        self.cmd.write_arg_fmt(item);
    }
}

/// A call that has no answer. Dropped as such after its time, it tells that.
struct Unanswered<'a> {
    cause: &'a Mutex<Option<Error>>,
    sent: Instant,
    left: Duration,
}

impl Unanswered<'_> {
    fn answered(mut self) {
        self.left = Duration::MAX;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // Its carrier's timer began before.
        if self.sent.elapsed() >= self.left / 2 {
            *self.cause.lock() = Some(Error::Timeout(self.left));
        }
    }
}

#[cfg(test)]
mod tests;
