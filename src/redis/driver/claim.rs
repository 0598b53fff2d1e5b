//! The handles of a store, the future of a claim, and held permits.

use super::{
    carry::{Carrier, Link, carriers, spawn},
    cell::{Cell, ClaimRefusal},
    end::may_block,
    keeper::{self, boot_time},
    runtimes::here,
    shared::{Dropped, Rest, Shared, StoreHealth, Urgent},
    transport::{Cause, News, Observer, ServerConnection, Transport},
};
use crate::{
    observe::contain,
    semaphore::{Policy, timer},
};
use proto::core::{
    Call, Change, Core, CoreSettings, FOREVER, LevelClaim, Merge, PermitId, Refusal, RuntimeId,
    SlotRanges, Time,
};
use std::{
    future::poll_fn,
    iter,
    ops::Deref,
    pin::{Pin, pin},
    sync::Arc,
    task::Context,
    time::{Duration, Instant},
};
use tokio::runtime::{Handle, Id};

/// How long the drop of a store's last user waits for releases. The thread sends them in a fraction of a millisecond.
const LAST_WAIT: Duration = Duration::from_millis(10);

/// The interval at which callers poll while they wait for a connection or for limits.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The interval at which a claim advances the core, if its time is over but it is still undecided.
const RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Held by handles and permits only, so dropping the last one means that no user is left.
pub(super) struct UserGuard<T: Transport>(pub(super) Arc<Shared<T>>);

impl<T: Transport> Drop for UserGuard<T> {
    /// Waits until the queued releases are sent, if this thread may block. The process may be about to end, and the
    /// keeper's thread with it.
    fn drop(&mut self) {
        self.0.post(Dropped::Handles);
        let is_over = self.0.enter(|core, _, _| core.is_forgotten()) != Some(false);
        if !is_over && contain(may_block) == Some(true) {
            self.0.wait_until_drained(Instant::now() + LAST_WAIT);
        }
    }
}

/// A handle to a running store.
pub(in crate::redis) struct Driver<T: Transport>(pub(super) Arc<UserGuard<T>>);

impl<T: Transport> Clone for Driver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Transport> Driver<T> {
    /// Starts the keeper's thread.
    pub(in crate::redis) fn start(
        transport: T,
        settings: CoreSettings,
        observer: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        let driver = Self::new(transport, settings, (Box::new(observer), boot_time));
        driver.0.0.enter(|_, _, _| ());
        driver
    }

    pub(in crate::redis) fn new(
        transport: T,
        settings: CoreSettings,
        (observer, clock): (Observer, fn() -> Time),
    ) -> Self {
        let shared = Shared::new(transport, settings, observer, clock, keeper::start);
        Self(Arc::new(UserGuard(Arc::new(shared))))
    }

    pub(in crate::redis) fn health(&self) -> StoreHealth {
        self.0.0.health()
    }

    /// The last known failure of a server.
    pub(in crate::redis) fn error(&self, server: usize) -> Option<Cause> {
        self.0.0.transport.error(server)
    }

    /// Sets the servers of slots before the first claim.
    pub(in crate::redis) fn set_slots(&self, slots: SlotRanges) {
        let shared = &self.0.0;
        shared.enter(|core, _, now| core.handle_servers(now, Change::Slots(slots)));
    }

    /// The server last known to have a slot.
    pub(in crate::redis) fn server_at(&self, slot: u16) -> usize {
        let server = self.0.0.enter(|core, _, _| core.server_at(slot));
        server.unwrap_or_default()
    }

    /// Reads the limits, because an operator has set one here. Returns false if they were not read by the deadline.
    pub(in crate::redis) async fn read_limits(&self, deadline: Instant) -> bool {
        let shared = &self.0.0;
        let since = shared.enter(|core, _, now| {
            core.look_at_limits(now);
            now
        });
        let is_read =
            || shared.enter(|core, _, _| since.is_none_or(|since| core.has_limits_since(since)));
        while is_read() == Some(false) && Instant::now() < deadline {
            timer::sleep(POLL_INTERVAL).await;
        }
        is_read() == Some(true)
    }

    /// False if the limits that operators set cannot be read now, as far as this process knows.
    pub(in crate::redis) fn reads_limits(&self) -> bool {
        let reads = self.0.0.enter(|core, _, _| core.reads_limits());
        reads.unwrap_or_default()
    }

    /// The limit that an operator has set for the semaphore of this name.
    pub(in crate::redis) fn limit_of(&self, name: &str) -> Option<u32> {
        let limit = self.0.0.enter(|core, _, _| core.limit_of_name(name));
        limit.flatten()
    }

    /// Notes that this process pauses a semaphore for this time from now on, or with `None` that it ends the pause.
    pub(in crate::redis) fn note_pause(&self, name: Arc<str>, pause: Option<Duration>) {
        self.0.0.enter(|core, _, now| {
            let until = pause.map(|pause| now + pause);
            core.note_pause(now, name, until);
        });
    }

    /// The lowest token that a new semaphore may begin with: the highest time that any server has shown, in
    /// microseconds.
    pub(in crate::redis) fn floor(&self) -> u64 {
        let floor = self.0.0.enter(|core, _, now| core.floor(now));
        floor.unwrap_or_default()
    }

    /// Returns this runtime's connection to a server. Connects if the runtime has none. Returns `None` if an attempt
    /// that began after this call has failed, or is not complete by `until`.
    pub(in crate::redis) async fn connection(
        &self,
        server: usize,
        until: Instant,
    ) -> Option<Arc<T::Connection>> {
        let (shared, here, start) = (&self.0.0, here(), (self.0.0.clock)());
        loop {
            let (connects, connection, has_failed) = shared.change(|rest| {
                let (from, now) = (rest.runtimes.enter(here), (shared.clock)());
                let connects = rest.runtimes.begin_connecting(now, from, server);
                let connection = rest.runtimes.connection(from, server);
                let connection = connection.filter(|connection| !connection.is_over());
                let has_failed = rest.runtimes.has_failed(start, from, server);
                (connects.then_some(from), connection, has_failed)
            });
            if let Some(from) = connects {
                Link::new(shared, from, server).spawn();
            }
            if connection.is_some() || has_failed || Instant::now() >= until {
                return connection;
            }
            timer::sleep(POLL_INTERVAL).await;
        }
    }

    /// Connects this runtime to all servers. Returns when they are connected, or at `until`.
    pub(in crate::redis) async fn warm_up(&self, until: Instant) {
        let (shared, here) = (&self.0.0, here());
        while Instant::now() < until {
            let entered = shared.enter(|core, rest, now| {
                let from = rest.runtimes.enter(here);
                let is_ready = core
                    .servers()
                    .all(|server| core.can_send_claims(from, server));
                let servers = core.servers();
                let connects =
                    servers.filter(|server| rest.runtimes.begin_connecting(now, from, *server));
                (from, connects.collect::<Vec<_>>(), is_ready)
            });
            let Some((from, connects, false)) = entered else {
                return;
            };
            for server in connects {
                Link::new(shared, from, server).spawn();
            }
            timer::sleep(POLL_INTERVAL).await;
        }
    }

    pub(in crate::redis) fn is_shut(&self) -> bool {
        self.0.0.change(|rest| rest.is_shut)
    }

    /// Refuses all claims, and releases all permits, which count as lost from then on. Returns the name and the token
    /// of each permit that is not released by `until`.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the shutdown continues even if the future is dropped.
    pub(in crate::redis) async fn shutdown(&self, until: Instant) -> Vec<(Arc<str>, u64)> {
        let shared = &self.0.0;
        let mut is_drained = shared.is_drained.subscribe();
        shared.enter(|core, rest, _| {
            core.shutdown();
            rest.is_shut = true;
        });
        let drained = is_drained.wait_for(|is_drained| *is_drained);
        let _ = timer::timeout_at(until, drained).await;
        let unreleased = shared.enter(|core, _, _| core.unreleased());
        unreleased.unwrap_or_default()
    }

    /// Claims levels, from narrow to wide, each under a policy. `queued` is called with each level in whose queue the
    /// claim waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the claim back.
    pub(in crate::redis) async fn acquire(
        self,
        (levels, policies): (Vec<LevelClaim>, Vec<Policy>),
        queued: impl FnMut(usize),
    ) -> Result<HeldPermit<T>, ClaimRefusal> {
        let waits = levels.iter().filter_map(|level| level.wait);
        let longest = waits.map(|wait| wait.time).max().unwrap_or_default();
        let here = here();
        let claimed = self.claim(here, (&levels, policies))?;
        send_and_decide(claimed, here.map(|_| longest), queued).await
    }

    /// Makes a claim. If a call is returned, the task of the caller must send it.
    pub(super) fn claim(
        self,
        here: Option<Id>,
        (levels, policies): (&[LevelClaim], Vec<Policy>),
    ) -> Result<StartedClaim<T>, ClaimRefusal> {
        let of_cell = iter::zip(levels, policies)
            .map(|(level, policy)| (policy, Arc::clone(&level.name), level.slot));
        let cell = Cell::new(of_cell);
        self.begin(here, cell, |core, now, from| {
            Some(core.acquire(now, from, levels))
        })
    }

    /// Begins a claim, and connects to its servers if needed. The core's events for the claim's id go to the cell.
    fn begin(
        self,
        here: Option<Id>,
        cell: Cell,
        claim: impl FnOnce(&mut Core, Time, RuntimeId) -> Option<(PermitId, Option<Call>)>,
    ) -> Result<StartedClaim<T>, ClaimRefusal> {
        let (shared, cell) = (Arc::clone(&self.0.0), Arc::new(cell));
        let begun = shared.enter(|core, rest, now| {
            let from = rest.runtimes.enter(here);
            rest.keeper.is_busy = true;
            let (id, call) = claim(core, now, from)?;
            let servers = cell.slots().map(|slot| core.server_at(slot));
            // In an outage only the thread checks whether the server is back.
            let servers = servers.filter(|server| !core.is_in_outage(*server));
            let connects =
                servers.filter(|server| rest.runtimes.begin_connecting(now, from, *server));
            let connects: Vec<_> = connects.collect();
            rest.cells.insert(id, &cell);
            let own = call.and_then(|call| rest.route(core, now, call));
            Some((id, from, connects, own, rest.next(core, now, from)))
        });
        let begun = begun.ok_or(ClaimRefusal::CorePanicked)?;
        let (id, from, connects, own, next) = begun.ok_or(ClaimRefusal::By(Refusal::Revoked))?;
        for server in connects {
            Link::new(&shared, from, server).spawn();
        }
        spawn(carriers(&shared, from, Some(next)));
        let own = own.map(|call| Carrier::new(&shared, call));
        let held = HeldPermit {
            driver: self,
            id,
            cell,
        };
        Ok((held, own))
    }
}

/// A claim, and the call that its own task must send.
type StartedClaim<T> = (HeldPermit<T>, Option<Carrier<T>>);

/// The call that the waiting task itself sends. Boxed, because it is large and most tasks have none.
struct OwnCall(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl OwnCall {
    fn new<T: Transport>(carrier: Option<Carrier<T>>) -> Self {
        Self(carrier.map(|carrier| Box::pin(carrier.send()) as _))
    }

    /// Polls the call. Its outcome is written to the cell.
    fn poll(&mut self, cell: &Cell, cx: &mut Context<'_>) {
        if let Some(carrying) = &mut self.0 {
            cell.unregister();
            if carrying.as_mut().poll(cx).is_ready() {
                self.0 = None;
            }
        }
    }
}

/// Sends the call of a claim, and waits until the claim is decided. In a runtime the wait is bounded by `longest`.
async fn send_and_decide<T: Transport>(
    (held, own): StartedClaim<T>,
    longest: Option<Duration>,
    mut queued: impl FnMut(usize),
) -> Result<HeldPermit<T>, ClaimRefusal> {
    let mut bound = pin!(longest.map(|longest| watch_end(&held.driver.0.0, longest)));
    let mut own = OwnCall::new(own);
    // Moved here to be dropped before `own`: when the call is dropped, the claims that it names are abandoned already.
    let held = held;
    let outcome = poll_fn(|cx| {
        own.poll(&held.cell, cx);
        let outcome = held.cell.poll_outcome(cx);
        if let Some(level) = held.cell.queued() {
            queued(level);
        }
        // A timer of a runtime that has ended panics outside of another runtime. Then only the thread checks the time.
        if let Some(bound) = bound.as_mut().as_pin_mut()
            && outcome.is_pending()
            && Handle::try_current().is_ok()
        {
            return bound.poll(cx).map(Err);
        }
        outcome
    });
    outcome.await.map(|()| held)
}

/// Advances the core at the claim's latest end, in case the thread does not. Ready only if Tokio's time is paused,
/// because then a sleep ends at once.
fn watch_end<T: Transport>(
    shared: &Arc<Shared<T>>,
    longest: Duration,
) -> impl Future<Output = ClaimRefusal> + use<T> {
    let mut at = Instant::now() + longest.min(FOREVER) + shared.settings.call_time();
    let shared = Arc::clone(shared);
    async move {
        loop {
            timer::sleep_until(at).await;
            if Instant::now() < at {
                return ClaimRefusal::PausedClock;
            }
            shared.enter(|core, _, now| core.handle_timeout(now));
            at = Instant::now() + RECHECK_INTERVAL;
        }
    }
}

/// A permit, which is released when it is dropped.
pub(in crate::redis) struct HeldPermit<T: Transport> {
    driver: Driver<T>,
    pub(super) id: PermitId,
    pub(super) cell: Arc<Cell>,
}

impl<T: Transport> HeldPermit<T> {
    pub(in crate::redis) fn is_lost(&self) -> bool {
        self.cell.is_lost_by((self.driver.0.0.clock)())
    }

    /// Claims more units of a level, without waiting. `more` is the number of units, and the limit of the claim.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the claim back.
    pub(in crate::redis) async fn grow(
        &self,
        level: usize,
        more: (u32, u32),
    ) -> Result<(), ClaimRefusal> {
        match self.grow_with(level, more, Merge::Smallest).await {
            // The units may fit alone, but not together with those of earlier growths.
            (Err(ClaimRefusal::By(Refusal::Full(..))), merged) if merged > 0 => {
                self.grow_with(level, more, Merge::Nothing).await.0
            }
            (outcome, _) => outcome,
        }
    }

    /// Claims more units. Includes earlier growths as `merge` selects, so that a permit has few leases, and releases
    /// those after the grant. Also returns how many units of earlier growths the claim includes.
    async fn grow_with(
        &self,
        level: usize,
        more: (u32, u32),
        merge: Merge,
    ) -> (Result<(), ClaimRefusal>, u32) {
        let (driver, root, mut merged) = (self.driver.clone(), self.id, 0);
        // The core reports only the outcome for the growth, and all later events for the permit.
        let claimed = driver.begin(here(), self.cell.for_growth(level), |core, now, from| {
            let growth = core.grow(now, from, (root, level), more, merge)?;
            merged = growth.merged;
            Some((growth.id, growth.call))
        });
        let longest = here().map(|_| Duration::ZERO);
        let outcome = match claimed {
            Ok(claimed) => send_and_decide(claimed, longest, |_| ()).await,
            Err(why) => Err(why),
        };
        let outcome = outcome.map(|growth| {
            growth.keep();
            if merged > 0 {
                // The units are released even if the future is dropped.
                drop(self.shrink(level, merged));
            }
        });
        (outcome, merged)
    }

    /// Makes the drop of this handle release nothing: the units of a growth are released with its permit.
    fn keep(self) {
        self.cell.mark_gone();
        let shared = &self.driver.0.0;
        shared.enter(|_, rest, _| rest.cells.remove(self.id));
    }

    /// Releases units of a level, but not all of them. The future is ready when they are free. Returns `None` if the
    /// permit is released.
    ///
    /// # Cancel safety
    ///
    /// The units are released even if the future is never polled.
    pub(in crate::redis) fn shrink(
        &self,
        level: usize,
        units: u32,
    ) -> Option<impl Future<Output = ()> + Send + use<T>> {
        let parts = run_release(&self.driver.0.0, |core, rest, now| {
            let parts = core.shrink(now, self.id, (level, units))?;
            let parts = parts.into_iter().map(|id| {
                let cell = Arc::new(Cell::new(iter::empty()));
                rest.cells.insert(id, &cell);
                cell
            });
            Some(parts.collect::<Vec<_>>())
        });
        let parts = parts.flatten()?;
        Some(async move {
            for cell in parts {
                poll_fn(|cx| cell.poll_was_held(cx)).await;
            }
        })
    }

    /// Releases the permit. The future returns true if the permit was held until then, and false for a second call. The
    /// task that polls the future sends the release if no call of its runtime is in flight, otherwise the thread does.
    ///
    /// # Cancel safety
    ///
    /// The permit is released even if the future is never polled.
    pub(in crate::redis) fn release(&self) -> impl Future<Output = bool> + Send + use<T> {
        let is_reported = self.cell.mark_gone() && self.release_with_report();
        let (shared, cell, id) = (
            Arc::clone(&self.driver.0.0),
            Arc::clone(&self.cell),
            self.id,
        );
        async move {
            if !is_reported {
                return false;
            }
            // The call is made only now, because it must be sent at once.
            let mut own = OwnCall::new(release_alone(&shared, id));
            poll_fn(|cx| {
                own.poll(&cell, cx);
                cell.poll_was_held(cx)
            })
            .await
        }
    }

    /// Notes how many units of a budget the holder has used so far. The next refresh or the release reports the total.
    pub(in crate::redis) fn settle(&self, level: usize, used: u32) {
        let shared = &self.driver.0.0;
        shared.enter(|core, _, _| core.settle(self.id, level, used));
    }

    /// True if a semaphore of the permit counts as full, so that other claims may wait or be refused until the release
    /// arrives.
    pub(in crate::redis) fn is_full(&self) -> bool {
        let shared = &self.driver.0.0;
        shared.enter(|core, _, now| core.is_full(now, self.id)) == Some(true)
    }

    /// Releases the permit, and asks the core to report the release. Returns false if the core does not know the
    /// permit.
    fn release_with_report(&self) -> bool {
        let reported = run_release(&self.driver.0.0, |core, rest, now| {
            let is_known = rest.cells.get(self.id).is_some();
            if is_known {
                core.release(now, self.id, true);
            }
            is_known
        });
        reported == Some(true)
    }
}

/// Runs `work`, a release, in the core, and sends urgent releases at once.
fn run_release<T: Transport, R>(
    shared: &Arc<Shared<T>>,
    work: impl FnOnce(&mut Core, &mut Rest<T::Connection>, Time) -> R,
) -> Option<R> {
    let released = shared.enter(|core, rest, now| {
        rest.keeper.is_busy = true;
        let result = work(core, rest, now);
        (result, rest.urgent_releases(core, now))
    });
    let (result, urgent) = released?;
    spawn_urgent(shared, urgent);
    Some(result)
}

/// Spawns tasks for urgent releases, because the caller may end before the answers arrive.
fn spawn_urgent<T: Transport>(shared: &Arc<Shared<T>>, urgent: Option<Urgent<T::Connection>>) {
    if let Some((from, next)) = urgent {
        spawn(carriers(shared, from, Some(next)));
    }
}

/// The call of a waiting release, for the task that waits for its answer.
fn release_alone<T: Transport>(shared: &Arc<Shared<T>>, id: PermitId) -> Option<Carrier<T>> {
    let call = shared.enter(|core, rest, now| {
        let from = rest.runtimes.enter(here());
        let call = core.release_alone(now, from, id)?;
        rest.route(core, now, call)
    });
    Some(Carrier::new(shared, call.flatten()?))
}

/// The state of the permit, for its holder.
impl<T: Transport> Deref for HeldPermit<T> {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.cell
    }
}

impl<T: Transport> Drop for HeldPermit<T> {
    fn drop(&mut self) {
        let is_refused = matches!(self.cell.outcome(), Some(Err(_)));
        if !is_refused && !self.is_gone() {
            let shared = &self.driver.0.0;
            let dropped = Dropped::Permit(self.id);
            let urgent =
                shared.post_and(dropped, |core, rest, now| rest.urgent_releases(core, now));
            spawn_urgent(shared, urgent.flatten());
        }
    }
}
