//! The tasks that send calls, and the connections that they use.

use super::{
    runtimes::Ending,
    shared::{Dropped, NextCall, RoutedCall, Shared},
    transport::{Messages, News, ServerConnection, Transport},
};
use crate::{
    observe::{Answered, contain},
    semaphore::timer::{Backoff, sleep, timeout},
};
use proto::{
    core::{CallFailure, Change, RuntimeId, THREAD},
    verbs::{Answer, Command, Group},
};
use std::{
    future::poll_fn,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    select,
    sync::Notify,
    task::{unconstrained, yield_now},
};

/// How long a connection that may be mute may take to answer a probe. It gets this time again once a replacement is
/// connected, because a slow server delays both.
const GRACE: Duration = Duration::from_millis(25);

/// Sends a call and reports its answers. Reports the call as abandoned if it is dropped before that.
pub(super) struct Carrier<T: Transport> {
    shared: Arc<Shared<T>>,
    /// `None` once the answers are reported.
    routed: Option<RoutedCall<T::Connection>>,
    /// When the call was sent.
    sent: Instant,
    /// For each command its verb, and the number of claims or permits in it.
    commands: Vec<(&'static str, usize)>,
}

impl<T: Transport> Carrier<T> {
    pub(super) fn new(shared: &Arc<Shared<T>>, call: RoutedCall<T::Connection>) -> Self {
        Self {
            shared: Arc::clone(shared),
            routed: Some(call),
            sent: Instant::now(),
            commands: Vec::new(),
        }
    }

    /// Takes the commands out of the call, to send them.
    pub(super) fn commands(&mut self) -> Vec<Command> {
        let routed = self.routed.as_mut();
        let commands = routed.map(|routed| mem::take(&mut routed.call.commands));
        let commands = commands.unwrap_or_default();
        (self.sent, self.commands) = (Instant::now(), commands.iter().map(verb_and_size).collect());
        commands
    }

    /// Sends the call. Further calls of the runtime are sent by separate tasks.
    pub(super) async fn send(mut self) {
        let (next, _) = self.exchange().await;
        spawn(next);
    }

    /// Sends the call, waits for at most a timeout, and then sends the calls that wait behind it. After a failure it
    /// yields first, so that another task can notice that the connection is broken. Otherwise calls that fail at once
    /// would follow each other without end.
    async fn send_in_sequence(self) {
        let mut own = Some(self);
        while let Some(mut carrier) = own {
            let longest = carrier.shared.settings.timeout;
            let call = timeout(longest, carrier.exchange());
            let Ok((next, is_answered)) = call.await else {
                return;
            };
            let mut next = next.into_iter();
            own = is_answered.then(|| next.next()).flatten();
            if !is_answered {
                yield_now().await;
            }
            spawn(next);
        }
    }

    /// Sends the call and waits for its answers. Returns the carriers of the runtime's next calls, and true if this
    /// call was answered.
    async fn exchange(&mut self) -> (Vec<Self>, bool) {
        let commands = self.commands();
        let Some(routed) = &self.routed else {
            return (Vec::new(), false);
        };
        let reply = {
            let left = self.shared.settings.timeout;
            // The first poll must send the call, even if its task has used up its budget of polls in this turn.
            let mut call = pin!(unconstrained(routed.connection.call(commands, left)));
            let sent = poll_fn(|cx| {
                let answered = call.as_mut().poll(cx);
                // Calls arrive in the order of their first polls.
                routed.call.progress.note_written();
                answered
            });
            sent.await
        };
        let is_answered = reply.is_ok();
        (self.report(reply), is_answered)
    }

    /// Reports the answers or the failure. Returns the carriers of the runtime's next calls.
    pub(super) fn report(&mut self, reply: Result<Vec<Answer>, CallFailure>) -> Vec<Self> {
        let Some(routed) = self.routed.take() else {
            return Vec::new();
        };
        self.report_commands(routed.call.runtime, |index| match &reply {
            Ok(answers) if !matches!(answers.get(index), None | Some(Answer::Failed(_))) => {
                Answered::Ok
            }
            _ => Answered::Error,
        });
        let next = self.shared.enter(|core, rest, now| {
            if reply.is_ok() {
                rest.runtimes
                    .note_answer(routed.call.runtime, routed.call.server);
            }
            core.handle_reply(now, routed.call.id, reply);
            rest.next(core, now, routed.call.runtime)
        });
        carriers(&self.shared, routed.call.runtime, next)
    }

    /// Reports each command of the call to the observer.
    fn report_commands(&mut self, from: RuntimeId, answered: impl Fn(usize) -> Answered) {
        let took = self.sent.elapsed();
        for (index, (verb, size)) in self.commands.drain(..).enumerate() {
            self.shared.report(News::Called {
                verb,
                size,
                took,
                answered: answered(index),
                by_thread: from == THREAD,
            });
        }
    }
}

/// The verb of a command, and how many claims or permits it names.
fn verb_and_size(command: &Command) -> (&'static str, usize) {
    let permits = |groups: &[Group]| groups.iter().map(|group| group.permits.len()).sum();
    match command {
        Command::Acquire { claims, .. } => ("acquire", claims.len()),
        Command::Refresh { groups, .. } => ("refresh", permits(groups)),
        Command::Release { groups, .. } => ("release", permits(groups)),
        Command::Presence(_) | Command::Leave => ("presence", 1),
        Command::Asking => ("asking", 1),
        Command::Confirm { .. } => ("wait", 1),
    }
}

impl<T: Transport> Drop for Carrier<T> {
    fn drop(&mut self) {
        if let Some(routed) = self.routed.take() {
            if self.sent.elapsed() >= self.shared.settings.timeout {
                self.report_commands(routed.call.runtime, |_| Answered::Timeout);
            }
            self.shared.post(Dropped::Carrier(routed.call.id));
        }
    }
}

/// The carriers of all calls that a runtime can send now. `first` is the first of these calls.
pub(super) fn carriers<T: Transport>(
    shared: &Arc<Shared<T>>,
    from: RuntimeId,
    first: Option<NextCall<T::Connection>>,
) -> Vec<Carrier<T>> {
    let (mut carriers, mut next) = (Vec::new(), first);
    while let Some(NextCall { call, has_more }) = next {
        carriers.extend(call.map(|call| Carrier::new(shared, call)));
        let more = || shared.enter(|core, rest, now| rest.next(core, now, from));
        next = has_more.then(more).flatten();
    }
    carriers
}

/// Polls each carrier once, so that their calls leave in this order, and spawns it on the current runtime. Without a
/// runtime the carriers are dropped, and the thread takes over.
pub(super) fn spawn<T: Transport>(carriers: impl IntoIterator<Item = Carrier<T>>) {
    for carrier in carriers {
        if let Ok(runtime) = Handle::try_current() {
            let mut carrying = Box::pin(carrier.send_in_sequence());
            let mut context = Context::from_waker(Waker::noop());
            // A panic of the call must not reach the caller.
            if let Some(Poll::Pending) = contain(|| carrying.as_mut().poll(&mut context)) {
                runtime.spawn(carrying);
            }
        }
    }
}

/// A connection of a runtime to a server, from the attempt to connect until its end. Reports the end when it is
/// dropped.
pub(super) struct Link<T: Transport> {
    shared: Arc<Shared<T>>,
    runtime: RuntimeId,
    server: usize,
    /// Notified if the connection may be mute: calls over it were not answered in time.
    doubted: Arc<Notify>,
    /// How the connection has ended. `Dropped` until that is known.
    ending: Ending,
}

impl<T: Transport> Link<T> {
    pub(super) fn new(shared: &Arc<Shared<T>>, runtime: RuntimeId, server: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            runtime,
            server,
            doubted: Arc::default(),
            ending: Ending::Dropped,
        }
    }

    /// Connects in a task of the current runtime.
    pub(super) fn spawn(self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.run());
        }
    }

    async fn run(mut self) {
        let mut is_thread_over = self.shared.is_thread_over.subscribe();
        let (was_connected, ending) = select! {
            _ = is_thread_over.wait_for(|is_over| *is_over) => (false, Ending::Dropped),
            was_connected = self.connect_and_hold() => (was_connected, Ending::Failed),
        };
        self.ending = ending;
        if was_connected && self.runtime != THREAD {
            self.reconnect().await;
        }
    }

    /// Connects, and holds the connection until it ends. Returns false if none could be made.
    async fn connect_and_hold(&self) -> bool {
        let Some(connection) = self.connect().await else {
            self.shared.not_connected(self.server);
            return false;
        };
        let mut connection = Arc::new(connection);
        spawn(self.connected(&connection));
        loop {
            let replacement = select! {
                () = connection.closed() => return true,
                made = self.replacement_for(&connection) => Arc::new(made),
            };
            spawn(self.attach(&replacement, Change::Replaced(self.runtime, self.server)));
            connection = replacement;
        }
    }

    async fn connect(&self) -> Option<T::Connection> {
        let messages = (self.runtime == THREAD).then(|| self.messages());
        self.shared.transport.connect(self.server, messages).await
    }

    /// Waits until a connection is mute, and returns a second connection that replaces it. If the connection may be
    /// mute, it gets one probe. If it stays silent, a second connection is made. The runtimes take turns, so a stalled
    /// server gets only one more connection at a time. A slow server delays the second connection too, so the probe
    /// gets the same time again once that connection is made.
    async fn replacement_for(&self, connection: &T::Connection) -> T::Connection {
        loop {
            self.doubted.notified().await;
            let turn = self.shared.replacing.lock().await;
            let probe = vec![Command::Presence(Vec::new())];
            let mut answers = pin!(connection.call(probe, self.shared.settings.timeout));
            if timeout(GRACE, answers.as_mut()).await.is_ok() {
                continue;
            }
            let made = async {
                let made = self.connect().await?;
                drop(turn);
                sleep(GRACE).await;
                Some(made)
            };
            let made = select! {
                _ = answers => None,
                made = made => made,
            };
            match made {
                Some(made) => return made,
                None => sleep(Backoff::LONGEST).await,
            }
        }
    }

    /// Connects this runtime again if claims wait for the thread's new connection, which takes longer, because it
    /// subscribes.
    async fn reconnect(self) {
        let (shared, server) = (Arc::clone(&self.shared), self.server);
        // Reports the end of the connection.
        drop(self);
        sleep(Backoff::FIRST).await;
        let here = Handle::current().id();
        let runtime = shared.enter(|core, rest, now| {
            let runtime = rest.runtimes.enter(Some(here));
            let connects =
                core.is_stuck(server) && rest.runtimes.begin_connecting(now, runtime, server);
            connects.then_some(runtime)
        });
        if let Some(runtime) = runtime.flatten() {
            Self::new(&shared, runtime, server).spawn();
        }
    }

    /// The handler of messages, which only the thread's connection receives.
    fn messages(&self) -> Messages {
        let shared = Arc::downgrade(&self.shared);
        Arc::new(move |message| {
            if let Some(shared) = shared.upgrade() {
                shared.enter(|core, _, now| core.handle_message(now, message));
            }
        })
    }

    /// Returns the carriers of the calls that the runtime can send now.
    pub(super) fn connected(&self, connection: &Arc<T::Connection>) -> Vec<Carrier<T>> {
        self.attach(connection, Change::Connected(self.runtime, self.server))
    }

    /// Gives the connection to the runtime, and notifies the core of the change.
    fn attach(&self, connection: &Arc<T::Connection>, change: Change) -> Vec<Carrier<T>> {
        let attached = self.shared.enter(|core, rest, now| {
            let connection = Arc::clone(connection);
            let was_connected =
                rest.runtimes
                    .connected(now, self.runtime, self.server, connection, &self.doubted);
            core.handle_servers(now, change);
            (was_connected, rest.next(core, now, self.runtime))
        });
        let (was_connected, next) = attached.unzip();
        if let Some(was_connected) = was_connected {
            let address = self.shared.transport.address(self.server);
            self.shared.report(News::Connected(address, was_connected));
        }
        carriers(&self.shared, self.runtime, next)
    }
}

impl<T: Transport> Drop for Link<T> {
    fn drop(&mut self) {
        let gone = Dropped::Connection(self.runtime, self.server, self.ending);
        self.shared.post(gone);
    }
}
