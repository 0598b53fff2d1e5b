//! redis-rs: commands as runs of scripts, and replies as answers.
//!
//! A run is sent as `EVAL` first on a connection, and as `EVALSHA` from then on. A server that does not know a
//! script has lost it since, as by `SCRIPT FLUSH`; then the next run is an `EVAL` again. The one that was not run
//! is not repeated here, because others that were sent after it on the connection may have run, and the core counts
//! on their order: a release behind an acquire is the last word. It is answered as not run, and the core sends again
//! what is still wanted.

use super::transport::{Cause, Connection, Messages, Slots, Transport};
use crate::{
    redis::{
        core::Failure,
        error::Error,
        protocol::{Answer, Command, Fault, Form, Message, Owner, Script, Sink, Verb},
        transport::{Line, Place, Replies, Subscription, Topology},
    },
    sync::Mutex,
};
use redis::{Cmd, RedisWrite, Value};
use std::{
    fmt,
    future::pending,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{select, sync::OwnedMutexGuard};

static SCRIPTS: LazyLock<[Script; Verb::ALL.len()]> = LazyLock::new(|| Verb::ALL.map(Script::of));

/// What went wrong last with a server.
type LastError = Arc<Mutex<Option<Error>>>;

/// The servers of a store.
pub(in crate::redis) struct Wire {
    topology: Arc<dyn Topology>,
    owner: Arc<Owner>,
    causes: Mutex<Vec<LastError>>,
    turn: Turn,
}

/// One connection of the thread receives messages at a time, and which one is all the same: those of a cluster go through
/// all nodes.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Wire {
    pub(in crate::redis) fn new(topology: Arc<dyn Topology>, owner: Arc<Owner>) -> Self {
        Self {
            topology,
            owner,
            causes: Mutex::default(),
            turn: Turn::default(),
        }
    }

    fn cause(&self, server: usize) -> LastError {
        let mut causes = self.causes.lock();
        let known = causes.len().max(server + 1);
        causes.resize_with(known, LastError::default);
        Arc::clone(&causes[server])
    }

    /// Subscribed before anything is sent, so that no message is missed.
    async fn open(&self, server: usize, messages: Option<Messages>) -> Result<Session, Error> {
        let line = Arc::clone(&self.topology).connect(server).await?;
        let turn = messages
            .as_ref()
            .map(|_| Arc::clone(&self.turn).try_lock_owned());
        let subscription = match (turn, line.client()) {
            (Some(Ok(turn)), Some(client)) => Some((
                turn,
                Subscription::open(client, &self.owner.channel()).await?,
            )),
            _ => None,
        };
        Ok(Session {
            server,
            line,
            topology: Arc::clone(&self.topology),
            messages: messages.map(|messages| (Arc::clone(&self.turn), messages)),
            subscription: Mutex::new(subscription),
            owner: Arc::clone(&self.owner),
            is_known: Default::default(),
            cause: self.cause(server),
        })
    }
}

impl Transport for Wire {
    type Connection = Session;

    async fn connect(&self, server: usize, messages: Option<Messages>) -> Option<Session> {
        let is_of_thread = messages.is_some();
        let opened = self.open(server, messages).await;
        let error = opened.as_ref().err().cloned();
        error.iter().for_each(|error| self.topology.failed(error));
        // What it says to the thread it may say only later to others.
        if error.is_some() || is_of_thread {
            *self.cause(server).lock() = error;
        }
        opened.ok()
    }

    async fn slots(&self, version: u64) -> (u64, Slots) {
        Arc::clone(&self.topology).slots(version).await
    }

    fn address(&self, server: usize) -> String {
        self.topology.address(server)
    }

    fn error(&self, server: usize) -> Option<Cause> {
        let cause = self.cause(server).lock().clone();
        cause.map(|cause| Arc::new(cause) as _)
    }

    fn is_denied(&self, server: usize) -> bool {
        let cause = self.cause(server);
        let cause = cause.lock();
        cause.as_ref().is_some_and(|cause| !cause.is_unavailable())
    }
}

/// A connection of a runtime.
pub(in crate::redis) struct Session {
    server: usize,
    line: Line,
    topology: Arc<dyn Topology>,
    /// The thread's.
    messages: Option<(Turn, Messages)>,
    /// Waits to be passed to the task that receives messages: its turn has come.
    subscription: Mutex<Option<(OwnedMutexGuard<()>, Subscription)>>,
    owner: Arc<Owner>,
    /// Whether the server is believed to know each script.
    is_known: [AtomicBool; Verb::ALL.len()],
    cause: LastError,
}

impl Connection for Session {
    async fn call(&self, commands: Vec<Command>, left: Duration) -> Result<Vec<Answer>, Failure> {
        if self.line.is_replaced() {
            return Err(Failure::NotConnected);
        }
        let (verbs, runs) = commands.iter().map(|command| self.run(command)).unzip();
        let unanswered = Unanswered {
            session: self,
            sent: Instant::now(),
            left,
        };
        let replies = self.line.call(runs).await;
        unanswered.answered();
        let verbs: Vec<Verb> = verbs;
        let replies = commands.iter().zip(verbs).zip(replies);
        let answers = replies.map(|((command, verb), reply)| self.answer(command, verb, reply));
        answers.collect()
    }

    async fn closed(&self) {
        select! {
            () = self.line.closed() => {}
            () = self.receive() => {}
        }
    }
}

impl Session {
    /// Receives messages, once it is its turn, until they end.
    async fn receive(&self) {
        let (Some((turn, messages)), Some(client)) = (&self.messages, self.line.client()) else {
            return pending().await;
        };
        let subscribed = self.subscription.lock().take();
        let (_turn, subscription) = match subscribed {
            Some(subscribed) => subscribed,
            None => {
                let turn = Arc::clone(turn).lock_owned().await;
                match Subscription::open(client, &self.owner.channel()).await {
                    Ok(subscription) => (turn, subscription),
                    Err(error) => return self.failed(error),
                }
            }
        };
        let take = |text: &str| Message::read(text).into_iter().for_each(&**messages);
        subscription.receive(take).await;
    }

    /// Sends what the core does not know of. An error: the connection is broken.
    pub(in crate::redis) async fn request(&self, commands: Vec<Cmd>) -> Result<Replies, Error> {
        let replies = self.line.call(commands).await;
        let errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        let mut errors = errors.inspect(|error| self.topology.failed(error));
        let broken = errors.find(|error| error.is_disconnect()).cloned();
        broken.map_or(Ok(replies), Err)
    }

    /// Subscribes, to see whether that is permitted.
    pub(in crate::redis) async fn subscribes(&self) -> Result<(), Error> {
        let Some(client) = self.line.client() else {
            return Ok(());
        };
        let subscribed = Subscription::open(client, &self.owner.channel()).await;
        subscribed.map(drop)
    }

    fn failed(&self, error: Error) {
        self.topology.failed(&error);
        *self.cause.lock() = Some(error);
    }

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
            false => Ok(Answer::Failed(self.fault(&error))),
        };
        self.failed(error);
        answer
    }

    fn fault(&self, error: &Error) -> Fault {
        let elsewhere = match error.redirect() {
            Some((address, is_moving)) => {
                let server = self.topology.server_at(address, self.server);
                match (server, is_moving) {
                    (Some(server), true) => Some(Fault::Ask(server)),
                    (Some(server), false) => Some(Fault::Moved(server)),
                    // It does not know the other's name. The map will have it.
                    (None, _) => (self.topology.place() != Place::Url).then_some(Fault::Again),
                }
            }
            None => error.is_code(&["TRYAGAIN"]).then_some(Fault::Again),
        };
        elsewhere.unwrap_or(match error.is_unavailable() {
            true => Fault::Unavailable,
            false => Fault::Mistake,
        })
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
    session: &'a Session,
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
            self.session.failed(Error::Timeout(self.left));
        }
    }
}

#[cfg(test)]
mod tests;
