//! The core, behind a mutex.

use super::{
    cell::{Cell, Cells},
    runtimes::{Ending, Keeper, Needs, Runtimes, here},
    transport::{News, Observer, ServerConnection, Transport},
};
use crate::{
    observe::contain,
    sync::{Mutex, MutexGuard},
};
use proto::core::{
    Call, CallFailure, CallId, Change, Core, CoreSettings, Event, Outage, PermitId, RuntimeId, Time,
};
use std::{any::Any, collections::VecDeque, mem, sync::Arc};
use tokio::sync::{Notify, watch};

/// The health of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum StoreHealth {
    Well,
    /// No thread could be started. The next claim tries again.
    NoKeeper,
    /// The core has panicked.
    Closed,
}

/// Something that was dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dropped {
    /// A permit, or a claim.
    Permit(PermitId),
    /// The [`Carrier`](super::carry::Carrier) of a call, before it has reported the answers.
    Carrier(CallId),
    /// A runtime's connection to a server, or its attempt to connect.
    Connection(RuntimeId, usize, Ending),
    /// The last handle and permit.
    Handles,
    /// The keeper's thread. A new one may have to be started.
    Keeper,
}

/// The most drops that are handled under one hold of the core's lock.
const MAX_DROPS: usize = 512;

/// The core and everything beside it, which all handles, permits, tasks and the thread share. The module docs of
/// `driver` have the rules.
pub(super) struct Shared<T: Transport> {
    pub(super) transport: T,
    pub(super) settings: CoreSettings,
    observer: Observer,
    pub(super) clock: fn() -> Time,
    /// Starts the keeper's thread.
    start: fn(&Arc<Self>),
    state: Mutex<SharedState<T::Connection>>,
    /// The drops that the core has not handled. The mutex is held only to push or take some.
    inbox: Mutex<VecDeque<Dropped>>,
    /// Wakes the thread.
    pub(super) bell: Notify,
    /// Held while a replacement is made for a connection that may be mute: one at a time.
    pub(super) replacing: tokio::sync::Mutex<()>,
    /// True once the thread has ended because nothing was left to do.
    pub(super) is_thread_over: watch::Sender<bool>,
    /// True once nothing is left to send after a shutdown, or after the drop of the last handle and permit.
    pub(super) is_drained: watch::Sender<bool>,
}

struct SharedState<C> {
    /// `None` once the core has panicked.
    core: Option<Core>,
    rest: Rest<C>,
}

/// The state that the lock protects beside the core.
pub(super) struct Rest<C> {
    pub(super) cells: Cells,
    pub(super) runtimes: Runtimes<C>,
    pub(super) keeper: Keeper,
    /// True if the most recent thread could make no runtime.
    pub(super) lacks_runtime: bool,
    /// True while a handle or a permit is left.
    pub(super) is_used: bool,
    /// True once a shutdown was requested.
    pub(super) is_shut: bool,
}

/// A call, and the connection that it takes.
#[derive(Debug)]
pub(super) struct RoutedCall<C> {
    pub(super) call: Call,
    pub(super) connection: Arc<C>,
}

/// The next call of a runtime, and true if more may follow. The lock is released between two calls, because building a
/// call with many leases takes long.
pub(super) struct NextCall<C> {
    pub(super) call: Option<RoutedCall<C>>,
    pub(super) has_more: bool,
}

/// The current runtime and its next call, for urgent releases.
pub(super) type Urgent<C> = (RuntimeId, NextCall<C>);

/// The work to do once the lock is released.
#[derive(Default)]
pub(super) struct Outbox {
    news: Vec<News>,
    /// The outages that have begun or ended, each with its server.
    outages: Vec<(usize, Outage)>,
    /// Notified, so that each link probes its connection, which may be mute.
    doubted: Vec<Arc<Notify>>,
    /// The cells whose tasks to wake, each with true if a loss was written.
    wakes: Vec<(Arc<Cell>, bool)>,
    /// Values to drop without the lock, because drops of wakers and connections run foreign code.
    dropped: Vec<Arc<dyn Any + Send + Sync>>,
    thread: Needs,
    /// True if the store is ending, and nothing is left to send.
    is_drained: bool,
}

impl<T: Transport> Shared<T> {
    pub(super) fn new(
        transport: T,
        settings: CoreSettings,
        observer: Observer,
        clock: fn() -> Time,
        start: fn(&Arc<Self>),
    ) -> Self {
        let rest = Rest {
            cells: Cells::default(),
            runtimes: Runtimes::new(),
            keeper: Keeper::default(),
            lacks_runtime: false,
            is_used: true,
            is_shut: false,
        };
        let core = Some(Core::new(settings.clone()));
        Self {
            transport,
            settings,
            observer,
            clock,
            start,
            state: Mutex::new(SharedState { core, rest }),
            inbox: Mutex::default(),
            bell: Notify::new(),
            replacing: tokio::sync::Mutex::default(),
            is_thread_over: watch::Sender::new(false),
            is_drained: watch::Sender::new(false),
        }
    }

    /// Runs `work` with the core, under its lock, and then delivers the effects. Returns `None` if the core has
    /// panicked.
    pub(super) fn enter<R>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
    ) -> Option<R> {
        // Earlier drops come first, however many they are, so that a claim sees the releases before it.
        let before = self.inbox.lock().len();
        for _ in 0..before / MAX_DROPS {
            self.run_step(self.state.lock(), |_, _, _| ());
        }
        let result = self.run_step(self.state.lock(), work);
        self.handle_inbox();
        result
    }

    /// Changes the state beside the core, which may have panicked.
    pub(super) fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Rest<T::Connection>) -> R,
    ) -> R {
        let result = change(&mut self.state.lock().rest);
        self.handle_inbox();
        result
    }

    pub(super) fn health(self: &Arc<Self>) -> StoreHealth {
        let is_closed = self.enter(|_, _, _| ()).is_none();
        match self.change(|rest| rest.keeper.runs && !rest.lacks_runtime) {
            _ if is_closed => StoreHealth::Closed,
            true => StoreHealth::Well,
            false => StoreHealth::NoKeeper,
        }
    }

    pub(super) fn report(&self, news: News) {
        contain(|| (self.observer)(news));
    }

    /// Reports a failed attempt to connect, to the core and to operators.
    pub(super) fn not_connected(self: &Arc<Self>, server: usize) {
        let is_denied = self.transport.is_denied(server);
        let change = Change::NotConnected { server, is_denied };
        self.enter(|core, _, now| core.handle_servers(now, change));
        let why = self.transport.error(server);
        self.report(News::NotConnected(why));
    }

    /// Adds a drop to the inbox, and handles the inbox unless another thread has the core's lock. Never panics. Waits
    /// for that lock only if the keeper's thread must be started and the start fails.
    pub(super) fn post(self: &Arc<Self>, dropped: Dropped) {
        self.post_and(dropped, |_, _, _| ());
    }

    /// Like `post`, and then calls `work` with the core, unless another thread has the lock.
    pub(super) fn post_and<R>(
        self: &Arc<Self>,
        dropped: Dropped,
        work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
    ) -> Option<R> {
        self.inbox.lock().push_back(dropped);
        let state = self.state.try_lock();
        let result = state.and_then(|state| self.run_step(state, work));
        self.handle_inbox();
        result
    }

    /// Handles the inbox. If another thread has the lock, that thread does so after its unlock.
    fn handle_inbox(self: &Arc<Self>) {
        while !self.inbox.lock().is_empty() {
            let Some(state) = self.state.try_lock() else {
                return;
            };
            self.run_step(state, |_, _, _| ());
        }
    }

    /// Handles some of the inbox and then `work`, and delivers the effects after the unlock.
    fn run_step<R>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, SharedState<T::Connection>>,
        work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
    ) -> Option<R> {
        let now = (self.clock)();
        let dropped = {
            let mut inbox = self.inbox.lock();
            let count = inbox.len().min(MAX_DROPS);
            inbox.drain(..count).collect()
        };
        let mut outbox = Outbox::default();
        let result = state.step(now, (dropped, &mut outbox), work);
        drop(state);
        self.deliver(outbox);
        result
    }

    fn deliver(self: &Arc<Self>, outbox: Outbox) {
        match outbox.thread {
            Needs::Nothing => {}
            Needs::Bell => self.bell.notify_one(),
            Needs::Start => (self.start)(self),
        }
        for doubted in outbox.doubted {
            doubted.notify_one();
        }
        if outbox.is_drained {
            self.is_drained
                .send_if_modified(|was| !mem::replace(was, true));
        }
        for news in outbox.news {
            self.report(news);
        }
        for (server, outage) in outbox.outages {
            let why = self.transport.error(server);
            self.report(News::Outage(outage, why));
        }
        for (cell, is_loss) in outbox.wakes {
            contain(|| cell.wake(is_loss));
            contain(|| drop(cell));
        }
        contain(|| drop(outbox.dropped));
    }
}

impl<C: ServerConnection> SharedState<C> {
    /// Handles the drops before the work, so that a claim sees the releases before it.
    fn step<R>(
        &mut self,
        now: Time,
        (dropped, outbox): (Vec<Dropped>, &mut Outbox),
        work: impl FnOnce(&mut Core, &mut Rest<C>, Time) -> R,
    ) -> Option<R> {
        let Self { core, rest } = self;
        let result = core.as_mut().and_then(|core| {
            let drops_and_work = || {
                for dropped in &dropped {
                    rest.handle_drop(now, *dropped, (Some(core), outbox));
                }
                let result = work(core, rest, now);
                rest.write_events(core, outbox);
                result
            };
            contain(drops_and_work)
        });
        if result.is_none() {
            for dropped in dropped {
                rest.handle_drop(now, dropped, (None, outbox));
            }
            rest.close_cells(now, outbox);
            outbox.news.extend(core.take().map(|_| News::CoreDied));
        }
        let is_ending = rest.is_shut || !rest.is_used;
        outbox.is_drained = is_ending && core.as_ref().is_none_or(Core::is_idle);
        let due = core.as_ref().and_then(|core| rest.due(core));
        outbox.thread = rest.keeper.plan_wake(core.as_ref(), due, rest.is_used);
        result
    }
}

impl<C: ServerConnection> Rest<C> {
    fn handle_drop(
        &mut self,
        now: Time,
        dropped: Dropped,
        (core, outbox): (Option<&mut Core>, &mut Outbox),
    ) {
        match (dropped, core) {
            (Dropped::Handles, core) => {
                self.is_used = false;
                core.into_iter().for_each(Core::shutdown);
            }
            (Dropped::Permit(id), core) => {
                let cell = self.cells.remove(id);
                outbox.dropped.extend(cell.map(|cell| cell as _));
                if let Some(core) = core {
                    self.keeper.is_busy = true;
                    core.release(now, id, false);
                }
            }
            (Dropped::Carrier(call), Some(core)) => {
                core.handle_reply(now, call, Err(CallFailure::Abandoned));
            }
            (Dropped::Connection(runtime, server, ending), core) => {
                let connection = self.runtimes.gone(now, runtime, server, ending);
                outbox.dropped.extend(connection.map(|gone| gone as _));
                if let Some(core) = core {
                    core.handle_servers(now, Change::Gone(runtime, server));
                }
            }
            (Dropped::Carrier(_), None) | (Dropped::Keeper, _) => {}
        }
    }

    /// Writes the events of the core to cells, and adds its reports to the outbox.
    fn write_events(&mut self, core: &mut Core, outbox: &mut Outbox) {
        while let Some((id, event)) = core.poll_event() {
            let Some(cell) = self.cells.get(id).map(Arc::clone) else {
                continue;
            };
            // `Held` only changes the end of the lease, and no task waits for that.
            let wakes = !matches!(event, Event::Held(..));
            let is_loss = matches!(event, Event::Lost | Event::Revoked);
            let is_shutdown = self.is_shut && event == Event::Lost;
            let is_last = matches!(
                event,
                Event::Revoked | Event::Refused(..) | Event::Released(..)
            );
            if is_shutdown {
                // A shutdown appears to the holder as a revocation, not as a loss.
                drop(cell.apply(Event::Revoked));
            } else {
                outbox.news.extend(cell.apply(event));
            }
            if is_shutdown || is_last {
                let cell = self.cells.remove(id);
                outbox.dropped.extend(cell.map(|cell| cell as _));
            }
            if wakes {
                outbox.wakes.push((cell, is_loss));
            }
        }
        outbox.news.extend(core.poll_limits().map(News::Limits));
        while let Some(outage) = core.poll_outage() {
            outbox.outages.push(outage);
        }
        while let Some(server) = core.poll_late_server() {
            outbox.doubted.extend(self.runtimes.doubted(server));
        }
    }

    /// After a panic of the core: fails undecided claims, and reports each permit whose lease has ended.
    fn close_cells(&mut self, now: Time, outbox: &mut Outbox) {
        for cell in self.cells.all() {
            let (has_changed, lost) = cell.close(now);
            let wake = has_changed.then(|| (Arc::clone(cell), !lost.is_empty()));
            outbox.news.extend(lost);
            outbox.wakes.extend(wake);
        }
    }

    /// The time of the thread's next work.
    pub(super) fn due(&mut self, core: &Core) -> Option<Time> {
        let connects = self.runtimes.next_attempt(core.servers());
        core.poll_timeout().into_iter().chain(connects).min()
    }

    /// Takes the next call of a runtime from the core.
    pub(super) fn next(&mut self, core: &mut Core, now: Time, from: RuntimeId) -> NextCall<C> {
        let call = core.poll_call(now, from);
        let call = call.and_then(|call| self.route(core, now, call));
        let has_more = call.is_some() && core.has_call(from);
        NextCall { call, has_more }
    }

    /// Takes the next call of the current runtime from the core if releases are urgent.
    pub(super) fn urgent_releases(&mut self, core: &mut Core, now: Time) -> Option<Urgent<C>> {
        core.has_urgent_releases().then(|| {
            let from = self.runtimes.enter(here());
            (from, self.next(core, now, from))
        })
    }

    /// Adds the runtime's connection to a call. If it has none, reports to the core that the call has failed.
    pub(super) fn route(
        &mut self,
        core: &mut Core,
        now: Time,
        call: Call,
    ) -> Option<RoutedCall<C>> {
        let Some(connection) = self.runtimes.connection(call.runtime, call.server) else {
            core.handle_reply(now, call.id, Err(CallFailure::NotConnected));
            return None;
        };
        Some(RoutedCall { call, connection })
    }
}
