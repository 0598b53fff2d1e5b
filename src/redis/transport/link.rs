//! The connection of one runtime to one server.
//!
//! redis-rs has a connection that reconnects too. It waits for that outside of its timeout, keeps
//! a stale error after its last try, and does not reconnect after timeouts or when a primary has
//! become a replica. This one makes one attempt at a time, in a task that outlives the caller that
//! started it; while it runs, callers wait for it, and for a moment after it has failed they are
//! refused at once. No caller holds anything that others wait for.

use super::{
    connection::{Connection, Replies, too_late},
    contract::Terms,
    endpoint::Endpoint,
    replicas::{confirmed, with_wait},
};
use crate::{
    observe::events,
    redis::{clock::CONNECT_PAUSE, error::Error},
    semaphore::timer::timeout_at,
};
use parking_lot::Mutex;
use redis::Cmd;
use std::{
    error::Error as _,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::Notify};

/// The connection of one runtime.
pub(super) struct Link {
    endpoint: Arc<dyn Endpoint>,
    timeout: Duration,
    runtime: Handle,
    state: Mutex<State>,
    /// Notified at the end of an attempt.
    attempted: Notify,
    was_connected: AtomicBool,
}

enum State {
    Idle,
    Connecting,
    /// To the server of this generation.
    Connected(Arc<Connection>, u64),
    Failed(Instant, Error),
}

impl Link {
    pub(super) fn new(endpoint: Arc<dyn Endpoint>, timeout: Duration, runtime: Handle) -> Self {
        Self {
            endpoint,
            timeout,
            runtime,
            state: Mutex::new(State::Idle),
            attempted: Notify::new(),
            was_connected: AtomicBool::new(false),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        match *self.state.lock() {
            State::Connected(_, generation) => generation == self.endpoint.generation(),
            _ => false,
        }
    }

    /// The same. If there is none, an attempt is made to make one.
    pub(super) fn connects(self: &Arc<Self>) -> bool {
        matches!(self.outcome(), Some(Ok(_)))
    }

    /// Sends commands. As many replies, in their order.
    pub(super) async fn send(
        self: &Arc<Self>,
        commands: Vec<Cmd>,
        terms: Terms,
    ) -> Result<Replies, Error> {
        // No command says nothing of the connection.
        if commands.is_empty() {
            return Ok(Replies::new());
        }
        let connection = self.connection(terms.deadline).await?;
        // The time counts from here: connecting may have used up some of it.
        let sent = Instant::now();
        let deadline = terms.deadline.min(sent + self.timeout);
        // Sooner than the deadline, so that the answer says what is missing.
        let left = deadline.saturating_duration_since(sent) * 3 / 4;
        let commands = with_wait(commands, terms.replicas, left.min(self.timeout / 2));
        let unanswered = Unanswered(self, &connection);
        let replies = timeout_at(deadline, connection.call(commands)).await;
        let replies = replies.map_err(|late| late.or(Error::Timeout(sent.elapsed())))?;
        mem::forget(unanswered);
        let replies = confirmed(replies, terms.replicas);
        self.note(&connection, &replies);
        Ok(replies)
    }

    /// The connection there is, or the outcome of the attempt to make one.
    pub(super) async fn connection(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Arc<Connection>, Error> {
        loop {
            // Registered before the state is read, so that no end of an attempt is missed.
            let attempted = self.attempted.notified();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            let attempted = timeout_at(deadline, attempted).await;
            attempted.map_err(too_late)?;
        }
    }

    /// The connection, or why there is none; `None` while an attempt runs.
    fn outcome(self: &Arc<Self>) -> Option<Result<Arc<Connection>, Error>> {
        let mut state = self.state.lock();
        match &*state {
            State::Connected(connection, generation)
                if *generation == self.endpoint.generation() =>
            {
                return Some(Ok(Arc::clone(connection)));
            }
            State::Failed(at, error) if at.elapsed() < CONNECT_PAUSE => {
                return Some(Err(error.clone()));
            }
            State::Connecting => return None,
            State::Idle | State::Connected(..) | State::Failed(..) => {}
        }
        *state = State::Connecting;
        let link = Arc::clone(self);
        self.runtime.spawn(async move { link.attempt().await });
        None
    }

    async fn attempt(&self) {
        let attempt = Arc::clone(&self.endpoint).connect().await;
        match &attempt {
            Ok((connection, _)) => {
                let again = self.was_connected.swap(true, Ordering::Relaxed);
                events::connected(connection.address(), again);
            }
            // Its level says nothing more.
            Err(error) => events::not_connected(error.source().unwrap_or(error)),
        }
        *self.state.lock() = match attempt {
            Ok((connection, generation)) => State::Connected(Arc::new(connection), generation),
            Err(error) => State::Failed(Instant::now(), error),
        };
        self.attempted.notify_waiters();
    }

    /// Finds out whether the connection is alive, unless a probe does so already.
    fn probe(self: &Arc<Self>, connection: &Arc<Connection>) {
        if connection.start_probe() {
            let (link, connection) = (Arc::clone(self), Arc::clone(connection));
            self.runtime.spawn(async move {
                match connection.probe(link.timeout).await {
                    Some(replies) => link.note(&connection, &replies),
                    None => link.end(&connection, State::Idle),
                }
            });
        }
    }

    /// Ends the connection if the replies say that it is useless for every command.
    fn note(&self, connection: &Arc<Connection>, replies: &Replies) {
        let is_useless = |error: &&Error| error.is_disconnect() || error.is_read_only();
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        match errors.find(is_useless) {
            // A replica would accept any number of connections, and answer the same to all. So would a
            // server that closes each at its first command.
            Some(error @ Error::Redis(cause))
                if error.is_read_only() || !connection.is_proven() =>
            {
                let error = Error::unconnected(cause.clone());
                self.end(connection, State::Failed(Instant::now(), error));
            }
            Some(_) => self.end(connection, State::Idle),
            None => {}
        }
    }

    /// Ends a connection, and none of its successors.
    fn end(&self, ended: &Arc<Connection>, next: State) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Connected(connection, _) if Arc::ptr_eq(connection, ended)) {
            *state = next;
        }
    }
}

/// A call that has no answer. Dropped as such, it casts doubt on its connection.
struct Unanswered<'a>(&'a Arc<Link>, &'a Arc<Connection>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.probe(self.1);
    }
}
