//! The core, behind a mutex.

use super::{
    cell::{Cell, Cells, Refused, Told},
    inbox::{self, Dropped, Inbox},
    load::Load,
    runtimes::Runtimes,
    thread::{Keeper, Needs},
    transport::{Cause, Transport},
};
use crate::{
    observe::LostBy,
    redis::core::{Call, Change, Core, Event, Failure, Outage, RuntimeId, Settings, Time},
    semaphore::Policy,
    sync::{Mutex, MutexGuard},
};
use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use tokio::sync::{Notify, watch};

/// Learns what nobody else would tell. It must not block.
pub(in crate::redis) trait Observer: Send + Sync + 'static {
    /// The keeper's thread has ended by a panic. Another one starts.
    fn keeper_died(&self);

    /// The core has panicked. The store is closed.
    fn core_died(&self);

    /// A runtime has a connection to a server: not its first one, if it has one `again`.
    fn connected(&self, address: String, again: bool);

    fn not_connected(&self, why: Option<Cause>);

    /// Claims are decided without a server, or by it again.
    fn outage(&self, outage: Outage, why: Option<Cause>);

    /// A level of a permit is lost, which had this token.
    fn lost(&self, policy: &Policy, token: u64, by: LostBy);

    /// A level of a permit goes on without its server: one that was granted before, if it `is_kept`.
    fn degraded(&self, policy: &Policy, name: &Arc<str>, is_kept: bool);
}

/// Whether a store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Health {
    Well,
    /// No thread could be started. The next claim tries again.
    NoKeeper,
    /// The core has panicked.
    Closed,
}

/// See the module docs.
pub(super) struct Shared<T: Transport> {
    pub(super) transport: T,
    pub(super) settings: Settings,
    observer: Box<dyn Observer>,
    pub(super) clock: fn() -> Time,
    /// Starts the keeper's thread.
    start: fn(&Arc<Self>),
    state: Mutex<State<T::Connection>>,
    inbox: Inbox,
    /// Wakes the thread.
    pub(super) bell: Notify,
    /// Whether the thread has ended because nothing was left to do.
    pub(super) is_over: watch::Sender<bool>,
    /// Whether nothing is left since it was shut down.
    pub(super) is_drained: watch::Sender<bool>,
}

struct State<C> {
    /// `None`: it has panicked.
    core: Option<Core>,
    rest: Rest<C>,
}

/// What goes with the core.
pub(super) struct Rest<C> {
    pub(super) cells: Cells,
    pub(super) runtimes: Runtimes<C>,
    pub(super) keeper: Keeper,
    /// Whether a handle or a permit is left.
    pub(super) is_used: bool,
    pub(super) is_shut: bool,
}

/// What a runtime sends now, as far as it was made under one hold of the lock: a call of many leases takes long.
pub(super) struct Next<C> {
    pub(super) load: Option<Load<C>>,
    pub(super) has_more: bool,
}

/// What is to be done once the lock is released.
pub(super) struct Outbox<C> {
    /// The cells that were written to, and what is told of each.
    wakes: Vec<(Arc<Cell>, Option<Told>)>,
    /// Dropped without the lock, because they hold wakers, and what a transport has.
    cells: Vec<Arc<Cell>>,
    connections: Vec<Arc<C>>,
    /// Those that have begun or ended, and of which server.
    outages: Vec<(usize, Outage)>,
    thread: Needs,
    /// Whether the core has panicked just now.
    closes: bool,
    /// Whether nothing is left.
    is_drained: bool,
}

impl<C> Default for Outbox<C> {
    fn default() -> Self {
        Self {
            wakes: Vec::new(),
            cells: Vec::new(),
            connections: Vec::new(),
            outages: Vec::new(),
            thread: Needs::Nothing,
            closes: false,
            is_drained: false,
        }
    }
}

/// Runs what may panic. What the panic carries is not dropped, because that may panic too.
fn contained<R>(run: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(mem::forget)
        .ok()
}

impl<T: Transport> Shared<T> {
    pub(super) fn new(
        transport: T,
        settings: Settings,
        observer: Box<dyn Observer>,
        clock: fn() -> Time,
        start: fn(&Arc<Self>),
    ) -> Self {
        let rest = Rest {
            cells: Cells::default(),
            runtimes: Runtimes::new(),
            keeper: Keeper::default(),
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
            state: Mutex::new(State { core, rest }),
            inbox: Inbox::default(),
            bell: Notify::new(),
            is_over: watch::Sender::new(false),
            is_drained: watch::Sender::new(false),
        }
    }

    /// Lets the core work. `None`: it has panicked.
    pub(super) fn enter<R>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
    ) -> Option<R> {
        // What was dropped before comes first, however much that is: a claim sees the releases before it.
        for _ in 0..self.inbox.len() / inbox::MOST {
            self.hold(self.state.lock(), |_, _, _| ());
        }
        let result = self.hold(self.state.lock(), work);
        self.settle();
        result
    }

    /// All that a runtime sends now.
    pub(super) fn loads(
        self: &Arc<Self>,
        from: RuntimeId,
        first: Option<Next<T::Connection>>,
    ) -> Vec<Load<T::Connection>> {
        let (mut loads, mut next) = (Vec::new(), first);
        while let Some(Next { load, has_more }) = next {
            loads.extend(load);
            let more = || self.enter(|core, rest, now| rest.next(core, now, from));
            next = has_more.then(more).flatten();
        }
        loads
    }

    /// Changes what goes with the core, which may have panicked.
    pub(super) fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Rest<T::Connection>) -> R,
    ) -> R {
        let result = change(&mut self.state.lock().rest);
        self.settle();
        result
    }

    pub(super) fn health(self: &Arc<Self>) -> Health {
        let is_closed = self.enter(|_, _, _| ()).is_none();
        match self.change(|rest| rest.keeper.runs) {
            _ if is_closed => Health::Closed,
            true => Health::Well,
            false => Health::NoKeeper,
        }
    }

    /// The thread has panicked.
    pub(super) fn keeper_died(&self) {
        contained(|| self.observer.keeper_died());
    }

    pub(super) fn connected(&self, server: usize, again: bool) {
        let address = self.transport.address(server);
        contained(|| self.observer.connected(address, again));
    }

    pub(super) fn not_connected(self: &Arc<Self>, server: usize) {
        if self.transport.is_denied(server) {
            self.enter(|core, _, now| core.handle_servers(now, Change::Denied(server)));
        }
        let why = self.transport.error(server);
        contained(|| self.observer.not_connected(why));
    }

    /// Takes what was dropped. It never waits for the lock, and never panics.
    pub(super) fn post(self: &Arc<Self>, dropped: Dropped) {
        self.inbox.push(dropped);
        self.settle();
    }

    /// Takes what the inbox holds, unless another has the lock, who looks after that.
    fn settle(self: &Arc<Self>) {
        while !self.inbox.is_empty() {
            let Some(state) = self.state.try_lock() else {
                return;
            };
            self.hold(state, |_, _, _| ());
        }
    }

    fn hold<R>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<T::Connection>>,
        work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
    ) -> Option<R> {
        let now = (self.clock)();
        let (mut outbox, dropped) = (Outbox::default(), self.inbox.take());
        let result = state.step(now, (dropped, &mut outbox), work);
        drop(state);
        self.deliver(outbox);
        result
    }

    fn observe(&self, cell: &Cell, told: Told) {
        for (level, token) in cell.levels() {
            match told {
                Told::Lost(by) => self.observer.lost(&level.policy, token, by),
                Told::Degraded { is_kept } => {
                    self.observer.degraded(&level.policy, &level.name, is_kept);
                }
            }
        }
    }

    fn deliver(self: &Arc<Self>, outbox: Outbox<T::Connection>) {
        match outbox.thread {
            Needs::Nothing => {}
            Needs::Bell => self.bell.notify_one(),
            Needs::Start => (self.start)(self),
        }
        if outbox.is_drained {
            self.is_drained
                .send_if_modified(|was| !mem::replace(was, true));
        }
        if outbox.closes {
            contained(|| self.observer.core_died());
        }
        for (server, outage) in outbox.outages {
            let why = self.transport.error(server);
            contained(|| self.observer.outage(outage, why));
        }
        for (cell, told) in outbox.wakes {
            contained(|| told.map(|told| self.observe(&cell, told)));
            contained(|| cell.wake());
            contained(|| drop(cell));
        }
        contained(|| drop((outbox.cells, outbox.connections)));
    }
}

impl<C> State<C> {
    /// What was dropped comes before what is to be done, so that a claim sees the releases before it.
    fn step<R>(
        &mut self,
        now: Time,
        (dropped, outbox): (Vec<Dropped>, &mut Outbox<C>),
        work: impl FnOnce(&mut Core, &mut Rest<C>, Time) -> R,
    ) -> Option<R> {
        let Self { core, rest } = self;
        let result = core.as_mut().and_then(|core| {
            let all = || {
                for dropped in &dropped {
                    rest.dropped(now, *dropped, (Some(core), outbox));
                }
                let result = work(core, rest, now);
                rest.tell(core, outbox);
                result
            };
            contained(all)
        });
        if result.is_none() {
            for dropped in dropped {
                rest.dropped(now, dropped, (None, outbox));
            }
            rest.end_all(now, outbox);
            outbox.closes = core.take().is_some();
        }
        outbox.is_drained = rest.is_shut && core.as_ref().is_none_or(Core::is_idle);
        let due = core.as_ref().and_then(|core| rest.due(core));
        outbox.thread = rest.keeper.look(core.as_ref(), due, rest.is_used);
        result
    }
}

impl<C> Rest<C> {
    fn dropped(
        &mut self,
        now: Time,
        dropped: Dropped,
        (core, outbox): (Option<&mut Core>, &mut Outbox<C>),
    ) {
        match (dropped, core) {
            (Dropped::Handles, core) => {
                self.is_used = false;
                core.into_iter().for_each(Core::shutdown);
            }
            (Dropped::Permit(id), core) => {
                outbox.cells.extend(self.cells.remove(id));
                if let Some(core) = core {
                    self.keeper.is_busy = true;
                    core.release(now, id, false);
                }
            }
            (Dropped::Carrier(call), Some(core)) => {
                core.handle_reply(now, call, Err(Failure::Abandoned));
            }
            (Dropped::Connection(runtime, server), core) => {
                let connection = self.runtimes.gone(now, runtime, server);
                outbox.connections.extend(connection);
                if let Some(core) = core {
                    core.handle_servers(now, Change::Gone(runtime, server));
                }
            }
            (Dropped::Carrier(_), None) | (Dropped::Keeper, _) => {}
        }
    }

    /// Writes to cells what the core tells.
    fn tell(&mut self, core: &mut Core, outbox: &mut Outbox<C>) {
        while let Some(event) = core.poll_event() {
            let id = event.id();
            let Some(cell) = self.cells.get(id).map(Arc::clone) else {
                continue;
            };
            if let Event::Held(_, end) = event {
                cell.hold(end);
                continue;
            }
            let (is_last, told) = self.write(&cell, event);
            if is_last {
                outbox.cells.extend(self.cells.remove(id));
            }
            outbox.wakes.push((cell, told));
        }
        while let Some(outage) = core.poll_outage() {
            outbox.outages.push(outage);
        }
    }

    /// Returns whether nothing more follows of the permit, and what to tell of it.
    fn write(&self, cell: &Cell, event: Event) -> (bool, Option<Told>) {
        match event {
            Event::Queued(_, level) => cell.queue(level),
            Event::Held(_, end) => cell.hold(end),
            Event::Granted(_, grants) => cell.grant(&grants),
            Event::Degraded(_) => return (false, cell.degrade()),
            Event::Regained(_, tokens) => cell.regain(&tokens),
            Event::Lost(_) if !self.is_shut => return (false, cell.lose(LostBy::Lease)),
            Event::Revoked(_) => return (true, cell.revoke()),
            Event::Refused(_, why) => {
                cell.refuse(Refused::By(why));
                return (true, None);
            }
            Event::Released(_, was_held) => {
                cell.release(was_held);
                return (true, None);
            }
            // Its holder knows why.
            Event::Lost(_) => {
                cell.revoke();
                return (true, None);
            }
        }
        (false, None)
    }

    /// Without a core claims fail, and leases end at their ends.
    fn end_all(&mut self, now: Time, outbox: &mut Outbox<C>) {
        let closed = self.cells.all().filter_map(|cell| {
            let (has_changed, told) = cell.close(now);
            has_changed.then(|| (Arc::clone(cell), told))
        });
        outbox.wakes.extend(closed);
    }

    /// When the thread has something to do.
    pub(super) fn due(&mut self, core: &Core) -> Option<Time> {
        let connects = self.runtimes.connects_at(core.servers());
        core.poll_timeout().into_iter().chain(connects).min()
    }

    /// A call that a runtime sends now.
    pub(super) fn next(&mut self, core: &mut Core, now: Time, from: RuntimeId) -> Next<C> {
        let call = core.poll_call(now, from);
        let load = call.and_then(|call| self.load(core, now, (from, call)));
        let has_more = load.is_some() && core.has_call(from);
        Next { load, has_more }
    }

    /// A call, and the connection that it takes.
    pub(super) fn load(
        &mut self,
        core: &mut Core,
        now: Time,
        (from, call): (RuntimeId, Call),
    ) -> Option<Load<C>> {
        let connection = self.runtimes.connection(from, call.server);
        if connection.is_none() {
            core.handle_reply(now, call.id, Err(Failure::NotConnected));
        }
        connection.map(|connection| Load::new(now, call, (from, connection)))
    }
}
