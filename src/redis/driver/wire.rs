//! redis-rs: commands as runs of scripts, and replies as answers.
//!
//! The first run of a script on a connection is sent as `EVAL`, and later runs as `EVALSHA`. If the server does not
//! know the script of an `EVALSHA`, it has lost the script, for example by `SCRIPT FLUSH`. Then the next run is sent as
//! `EVAL` again. The failed run is not repeated here, because commands that were sent after it on the connection may
//! have run. The core relies on their order: a release that was sent after an acquire takes effect last. So the run is
//! reported as not run, and the core sends again the claims and permits that are still wanted.

use super::transport::{Cause, Messages, ServerConnection, Transport};
use crate::{
    redis::{
        error::CallError,
        fault::Class,
        protocol::{Form, convert_reply, script_command},
        transport::{self, Inquiry, Replies, ServerRole, Subscription, Topology},
    },
    semaphore::timer::{Backoff, timeout},
    sync::Mutex,
};
use proto::{
    core::{CallFailure, SlotRanges},
    verbs::{Answer, Command, CommandFault, CommandSink, Message, Owner, Sink, Verb},
};
use redis::{Cmd, RedisWrite, Value};
use scopeguard::{ScopeGuard, guard};
use std::{
    collections::HashMap,
    fmt,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{select, sync::OwnedMutexGuard, time::sleep};

/// How long a new connection of the thread waits for its subscription before it sends calls. Calls do not need it, and
/// a lease may end during the wait.
const SUBSCRIBE_FIRST: Duration = Duration::from_millis(250);

/// The shortest time between two inquiries into why connecting fails, because each needs further connections.
const INQUIRY_INTERVAL: Duration = Duration::from_secs(30);

/// The servers of a store.
pub(in crate::redis) struct Wire(Arc<Servers>);

struct Servers {
    topology: Arc<dyn Topology>,
    owner: Arc<Owner>,
    /// The last error of each server.
    errors: Mutex<HashMap<usize, CallError>>,
    /// The time of the last inquiry at each server: see [`Inquiry`].
    inquiries: Mutex<HashMap<usize, Instant>>,
    /// Held by the connection of the thread that receives messages. One is enough, because a cluster sends messages
    /// through all nodes.
    message_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Wire {
    pub(in crate::redis) fn new(topology: Arc<dyn Topology>, owner: Arc<Owner>) -> Self {
        Self(Arc::new(Servers {
            topology,
            owner,
            errors: Mutex::default(),
            inquiries: Mutex::default(),
            message_turn: Arc::default(),
        }))
    }

    /// Makes a connection. If it is for messages, subscribes before anything is sent, so that no message is missed, but
    /// does not wait long for that.
    async fn open(&self, server: usize, messages: Option<Messages>) -> Result<Session, CallError> {
        let servers = Arc::clone(&self.0);
        let inquiry = servers.inquiry(server);
        let connecting = Arc::clone(&servers.topology).connect(server, inquiry);
        let connection = match connecting.await {
            // Without an inquiry the reason is unknown, and the reason that an earlier inquiry found probably still
            // holds.
            Err(error) if inquiry == Inquiry::Skip && error.is_unexplained() => {
                let known = servers.error(server);
                let known = known.filter(|known| matches!(known, CallError::Unavailable(_)));
                return Err(known.unwrap_or(error));
            }
            connected => connected?,
        };
        let mut session = Session {
            servers,
            server,
            connection,
            messages,
            subscription: Mutex::default(),
            is_known: Default::default(),
        };
        if session.messages.is_some()
            && let Ok(turn) = Arc::clone(&self.0.message_turn).try_lock_owned()
        {
            let subscription = match timeout(SUBSCRIBE_FIRST, session.subscribe()).await {
                // A server that requires a password reports that in the answer to a short command, such as this one. At
                // a long command it closes the connection.
                Ok(Err(error)) if error.is_code(&["NOAUTH"]) => return Err(error),
                Ok(Ok(subscription)) => Some(subscription),
                Ok(Err(_)) | Err(_) => None,
            };
            if let (Some(own), Some(messages)) = (subscription, &session.messages) {
                messages(Message::Subscribed);
                *session.subscription.get_mut() = Some((turn, own));
            }
        }
        Ok(session)
    }
}

impl Transport for Wire {
    type Connection = Session;

    async fn connect(&self, server: usize, messages: Option<Messages>) -> Option<Session> {
        let is_of_thread = messages.is_some();
        match self.open(server, messages).await {
            Ok(session) => {
                // Only the thread's connection clears the error, because it has also subscribed. Other connections may
                // get the error later.
                if is_of_thread {
                    self.0.errors.lock().remove(&server);
                }
                Some(session)
            }
            Err(error) => {
                self.0.note_failure(server, error);
                None
            }
        }
    }

    async fn slots(&self, version: u64) -> (u64, SlotRanges) {
        loop {
            let (known, slots) = self.0.topology.slots();
            if known != version {
                return (known, slots);
            }
            Arc::clone(&self.0.topology).watch().await;
        }
    }

    fn address(&self, server: usize) -> String {
        self.0.topology.address(server)
    }

    fn error(&self, server: usize) -> Option<Cause> {
        self.0.error(server).map(|error| Arc::new(error) as _)
    }

    fn is_denied(&self, server: usize) -> bool {
        let errors = self.0.errors.lock();
        errors
            .get(&server)
            .is_some_and(|error| !error.is_unavailable())
    }
}

impl Servers {
    fn error(&self, server: usize) -> Option<CallError> {
        self.errors.lock().get(&server).cloned()
    }

    /// Decides whether the next attempt to connect may make an inquiry, and notes the time if so.
    fn inquiry(&self, server: usize) -> Inquiry {
        let (now, mut inquiries) = (Instant::now(), self.inquiries.lock());
        let last = inquiries.get(&server);
        if last.is_some_and(|last| now.duration_since(*last) < INQUIRY_INTERVAL) {
            return Inquiry::Skip;
        }
        inquiries.insert(server, now);
        Inquiry::Run
    }

    fn note_failure(&self, server: usize, error: CallError) {
        self.topology.note_failure(&error);
        self.errors.lock().insert(server, error);
    }
}

/// A connection of a runtime.
pub(in crate::redis) struct Session {
    servers: Arc<Servers>,
    server: usize,
    connection: Arc<transport::Connection>,
    /// The handler of messages, if this is the thread's connection.
    messages: Option<Messages>,
    /// A subscription from `open`, with its turn, until the task that receives messages takes it.
    subscription: Mutex<Option<(OwnedMutexGuard<()>, Subscription)>>,
    /// True for each script that the server is assumed to know.
    is_known: [AtomicBool; Verb::ALL.len()],
}

impl ServerConnection for Session {
    async fn call(
        &self,
        commands: Vec<Command>,
        left: Duration,
    ) -> Result<Vec<Answer>, CallFailure> {
        let (verbs, encoded): (Vec<Verb>, _) =
            commands.iter().map(|command| self.encode(command)).unzip();
        // If the future is dropped after half of its time or more, the call counts as timed out. Half is enough,
        // because the carrier's timer began earlier.
        let unanswered = guard(Instant::now(), |sent| {
            if sent.elapsed() >= left / 2 {
                self.servers
                    .note_failure(self.server, CallError::Timeout(left));
            }
        });
        let replies = self.connection.call(encoded).await;
        ScopeGuard::into_inner(unanswered);
        let replies = commands.iter().zip(verbs).zip(replies);
        let answers = replies.map(|((command, verb), reply)| self.answer(command, verb, reply));
        answers.collect()
    }

    fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    async fn closed(&self) {
        select! {
            () = self.connection.closed() => {}
            () = self.receive() => {}
        }
    }
}

impl Session {
    /// Receives messages, once it is this connection's turn, until they end. Calls do not need messages, so a refused
    /// subscription does not end the connection. A subscription that has ended does, because messages may be lost.
    async fn receive(&self) {
        let Some(messages) = &self.messages else {
            return pending().await;
        };
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        let mut subscribed = self.subscription.lock().take();
        while subscribed.is_none() {
            let turn = Arc::clone(&self.servers.message_turn).lock_owned().await;
            match self.subscribe().await {
                Ok(subscription) => {
                    subscribed = Some((turn, subscription));
                    messages(Message::Subscribed);
                }
                Err(error) => {
                    self.servers.topology.note_failure(&error);
                    drop(turn);
                    sleep(backoff.fail(start.elapsed())).await;
                }
            }
        }
        let take = |text: &str| Message::read(text).into_iter().for_each(&**messages);
        if let Some((_turn, subscription)) = subscribed {
            subscription.receive(take).await;
        }
    }

    pub(in crate::redis) async fn subscribe(&self) -> Result<Subscription, CallError> {
        self.connection
            .subscribe(&self.servers.owner.channel())
            .await
    }

    /// True if the server gets no optional commands.
    pub(in crate::redis) fn is_basic(&self) -> bool {
        self.connection.endpoint().is_basic()
    }

    /// The first command that the store needs and at which the server ends connections, if any.
    pub(in crate::redis) async fn ends_at(&self) -> Option<&'static str> {
        let channel = self.servers.owner.channel();
        transport::ends_at(self.connection.endpoint(), &channel).await
    }

    /// Sends commands that the core does not know of.
    pub(in crate::redis) async fn request(&self, commands: Vec<Cmd>) -> Replies {
        let replies = self.connection.call(commands).await;
        let errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        errors.for_each(|error| self.servers.topology.note_failure(error));
        replies
    }

    fn encode(&self, command: &Command) -> (Verb, Cmd) {
        let mut run = ScriptRun {
            is_known: &self.is_known,
            // Stays as it is for a command that runs no script.
            verb: Verb::Presence,
            cmd: Cmd::new(),
        };
        command.encode(&self.servers.owner, &mut run);
        (run.verb, run.cmd)
    }

    fn answer(
        &self,
        command: &Command,
        verb: Verb,
        reply: Result<Value, CallError>,
    ) -> Result<Answer, CallFailure> {
        let answer = reply.and_then(|reply| {
            command
                .decode(&convert_reply(reply))
                .ok_or(CallError::Reply)
        });
        match (answer, command) {
            (Ok(Answer::Replicas(have)), Command::Confirm { replicas, .. }) if have < *replicas => {
                let too_few = CallError::NotReplicated(have);
                self.servers.note_failure(self.server, too_few);
                Ok(Answer::Replicas(have))
            }
            (Ok(answer), _) => Ok(answer),
            // The command was not sent.
            (Err(CallError::Unavailable(_)), _) => Err(CallFailure::NotConnected),
            (Err(error), _) if error.is_code(&["NOSCRIPT"]) => {
                self.is_known[verb as usize].store(false, Relaxed);
                Ok(Answer::NotRun)
            }
            (Err(error), _) => {
                let answer = match error.is_disconnect() {
                    true => Err(CallFailure::Broken),
                    false => Ok(Answer::Failed(self.fault(&error))),
                };
                self.servers.note_failure(self.server, error);
                answer
            }
        }
    }

    /// The reason why this server has not run a command, or not completely.
    pub(in crate::redis) fn fault(&self, error: &CallError) -> CommandFault {
        let topology = &self.servers.topology;
        let redirect = error.redirect().map(|(address, is_moving)| {
            let server = topology.server_at(address, self.server);
            (server, is_moving)
        });
        match redirect {
            Some((Some(server), true)) => CommandFault::Ask(server),
            Some((Some(server), false)) => CommandFault::Moved(server),
            // The node does not know the name of the other node. The map of slots has it once the slot has moved.
            Some((None, _)) if topology.role() != ServerRole::Url => CommandFault::Again,
            _ => match error.redis_error().map(Class::classify) {
                Some(Class::Again) => CommandFault::Again,
                Some(Class::Interrupted) => CommandFault::Interrupted,
                Some(Class::Unserved) => CommandFault::Unserved,
                _ if error.is_unavailable() => CommandFault::Unavailable,
                _ => CommandFault::Mistake,
            },
        }
    }
}

/// A run of a script that is being encoded.
struct ScriptRun<'a> {
    is_known: &'a [AtomicBool; Verb::ALL.len()],
    verb: Verb,
    cmd: Cmd,
}

impl Sink for ScriptRun<'_> {
    fn begin(&mut self, verb: Verb, keys: usize, args: usize) {
        /// About the length of an id, and of a key.
        const ITEM: usize = 56;
        let form = match self.is_known[verb as usize].swap(true, Relaxed) {
            true => Form::Hash,
            false => Form::Source,
        };
        let items = keys + args;
        (self.verb, self.cmd) = (verb, script_command(verb, form, items, items * ITEM));
        self.cmd.arg(keys);
    }

    fn add(&mut self, item: impl fmt::Display) {
        self.cmd.write_arg_fmt(item);
    }
}

impl CommandSink for ScriptRun<'_> {
    fn plain(&mut self, words: &[&dyn fmt::Display]) {
        words.iter().for_each(|word| self.add(word));
    }
}
