//! The tasks that send calls, and the connections that they use.

use super::{
    runtimes::Ending,
    shared::{Dropped, Load, NextCall, Shared},
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

/// The time that a connection that may be mute has to answer a probe, and again once a replacement is connected. A slow
/// server delays the replacement too, so both answer at about the same time.
const GRACE: Duration = Duration::from_millis(25);

/// Sends a call and reports its answers. Reports the call as abandoned if it is dropped before that.
pub(super) struct Carrier<T: Transport> {
    shared: Arc<Shared<T>>,
    /// `None` once the answers are reported.
    load: Option<Load<T::Connection>>,
    /// When the call was sent, and for each command its verb and the number of claims or permits in it.
    sent: Instant,
    commands: Vec<(&'static str, usize)>,
}

impl<T: Transport> Carrier<T> {
    pub(super) fn new(shared: &Arc<Shared<T>>, load: Load<T::Connection>) -> Self {
        Self {
            shared: Arc::clone(shared),
            load: Some(load),
            sent: Instant::now(),
            commands: Vec::new(),
        }
    }

    /// Takes the commands out of the call, to send them.
    pub(super) fn commands(&mut self) -> Vec<Command> {
        let load = self.load.as_mut();
        let commands = load.map(|load| mem::take(&mut load.call.commands));
        let commands = commands.unwrap_or_default();
        (self.sent, self.commands) = (Instant::now(), commands.iter().map(what).collect());
        commands
    }

    /// Sends the call. Further calls of the runtime are sent by separate tasks.
    pub(super) async fn carry(mut self) {
        let (next, _) = self.call().await;
        spawn(next);
    }

    /// Sends the call, waits for at most a timeout, and then sends the calls that wait behind it. After a failure it
    /// yields first, so that another task can notice that the connection is broken. Otherwise calls that fail at once
    /// would follow each other without end.
    async fn carry_on(self) {
        let mut own = Some(self);
        while let Some(mut carrier) = own {
            let longest = carrier.shared.settings.timeout;
            let call = timeout(longest, carrier.call());
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

    /// Returns the carriers of the runtime's next calls, and whether this call was answered.
    async fn call(&mut self) -> (Vec<Self>, bool) {
        let commands = self.commands();
        let Some(load) = &self.load else {
            return (Vec::new(), false);
        };
        let reply = {
            let left = self.shared.settings.timeout;
            // The first poll sends the call, even if its task has used up its budget in this turn.
            let mut call = pin!(unconstrained(load.connection.call(commands, left)));
            let sent = poll_fn(|cx| {
                let answered = call.as_mut().poll(cx);
                // Calls arrive in the order of their first polls.
                load.call.progress.note_written();
                answered
            });
            sent.await
        };
        let is_answered = reply.is_ok();
        (self.report(reply), is_answered)
    }

    /// Reports the answers or the failure. Returns the carriers of the runtime's next calls.
    pub(super) fn report(&mut self, reply: Result<Vec<Answer>, CallFailure>) -> Vec<Self> {
        let Some(load) = self.load.take() else {
            return Vec::new();
        };
        self.tell(load.call.runtime, |at| match &reply {
            Ok(answers) if !matches!(answers.get(at), None | Some(Answer::Failed(_))) => {
                Answered::Ok
            }
            _ => Answered::Error,
        });
        let next = self.shared.enter(|core, rest, now| {
            if reply.is_ok() {
                rest.runtimes
                    .note_answer(load.call.runtime, load.call.server);
            }
            core.handle_reply(now, load.call.id, reply);
            rest.next(core, now, load.call.runtime)
        });
        carriers(&self.shared, load.call.runtime, next)
    }

    fn tell(&mut self, from: RuntimeId, answered: impl Fn(usize) -> Answered) {
        let took = self.sent.elapsed();
        for (at, (verb, size)) in self.commands.drain(..).enumerate() {
            self.shared.tell(News::Called {
                verb,
                size,
                took,
                answered: answered(at),
                by_thread: from == THREAD,
            });
        }
    }
}

/// The verb of a command, and how many claims or permits it names.
fn what(command: &Command) -> (&'static str, usize) {
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
        if let Some(load) = self.load.take() {
            if self.sent.elapsed() >= self.shared.settings.timeout {
                self.tell(load.call.runtime, |_| Answered::Timeout);
            }
            self.shared.post(Dropped::Carrier(load.call.id));
        }
    }
}

/// The carriers of all calls that a runtime can send now.
pub(super) fn carriers<T: Transport>(
    shared: &Arc<Shared<T>>,
    from: RuntimeId,
    first: Option<NextCall<T::Connection>>,
) -> Vec<Carrier<T>> {
    let (mut carriers, mut next) = (Vec::new(), first);
    while let Some(NextCall { load, has_more }) = next {
        carriers.extend(load.map(|load| Carrier::new(shared, load)));
        let more = || shared.enter(|core, rest, now| rest.next(core, now, from));
        next = has_more.then(more).flatten();
    }
    carriers
}

/// Spawns carriers on the current runtime. Their calls leave in this order. Without a runtime the carriers are dropped,
/// and the thread takes over.
pub(super) fn spawn<T: Transport>(carriers: impl IntoIterator<Item = Carrier<T>>) {
    for carrier in carriers {
        if let Ok(runtime) = Handle::try_current() {
            let mut carrying = Box::pin(carrier.carry_on());
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
    /// Notified if the connection may be mute.
    doubted: Arc<Notify>,
    /// How the connection has ended: `Dropped` until it is known.
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
        let mut is_over = self.shared.is_over.subscribe();
        let (was_connected, ending) = select! {
            _ = is_over.wait_for(|is_over| *is_over) => (false, Ending::Dropped),
            was_connected = self.hold() => (was_connected, Ending::Failed),
        };
        self.ending = ending;
        if was_connected && self.runtime != THREAD {
            self.again().await;
        }
    }

    /// Holds a connection until it ends. Returns false if none could be made.
    async fn hold(&self) -> bool {
        let Some(connection) = self.connect().await else {
            self.shared.not_connected(self.server);
            return false;
        };
        let mut connection = Arc::new(connection);
        spawn(self.connected(&connection));
        loop {
            let other = select! {
                () = connection.closed() => return true,
                other = self.replacement_for(&connection) => Arc::new(other),
            };
            spawn(self.attach(&other, Change::Replaced(self.runtime, self.server)));
            connection = other;
        }
    }

    async fn connect(&self) -> Option<T::Connection> {
        let messages = (self.runtime == THREAD).then(|| self.messages());
        self.shared.transport.connect(self.server, messages).await
    }

    /// Returns a connection that replaces a mute one. If calls on a connection were not answered in time, it gets one
    /// probe. If it stays silent, a second connection is made. The runtimes take turns, so a stalled server gets only
    /// one more connection at a time. A slow server delays the second connection too, so the probe gets the same time
    /// again once that connection is made.
    async fn replacement_for(&self, connection: &T::Connection) -> T::Connection {
        loop {
            self.doubted.notified().await;
            let turn = self.shared.replacing.lock().await;
            let time = vec![Command::Presence(Vec::new())];
            let mut answers = pin!(connection.call(time, self.shared.settings.timeout));
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

    /// Connects again for claims that were handed to the thread. The thread's connection takes longer, because it
    /// subscribes.
    async fn again(self) {
        let (shared, server) = (Arc::clone(&self.shared), self.server);
        drop(self);
        sleep(Backoff::FIRST).await;
        let here = Handle::current().id();
        let runtime = shared.enter(|core, rest, now| {
            let runtime = rest.runtimes.enter(Some(here));
            let connects = core.is_stuck(server) && rest.runtimes.connects(now, runtime, server);
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

    fn attach(&self, connection: &Arc<T::Connection>, change: Change) -> Vec<Carrier<T>> {
        let connected = self.shared.enter(|core, rest, now| {
            let connection = Arc::clone(connection);
            let again =
                rest.runtimes
                    .connected(now, self.runtime, self.server, connection, &self.doubted);
            core.handle_servers(now, change);
            (again, rest.next(core, now, self.runtime))
        });
        let (again, next) = connected.unzip();
        if let Some(again) = again {
            let address = self.shared.transport.address(self.server);
            self.shared.tell(News::Connected(address, again));
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
