//! Makes the next call of a runtime.

use super::{
    Core, MOST_DUE, Membership,
    call::{Call, CallSize, Flight, Items, StoreKey},
    connection::{ConnectionState, MORE_CALLS, MOST_CLAIMS},
    debt::Debt,
    id::{CallId, DebtId, LeaseRef, PermitId, RuntimeId, THREAD},
    lease::Lease,
    permit::ClaimedLevel,
    queues::SendQueue,
    time::Time,
};
use crate::verbs::{Command, Group, LeaseUnits, Part, Position, Standing, Wanted};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

/// A call that is being made.
#[derive(Default)]
struct Draft {
    flight: Flight,
    commands: Vec<Command>,
    size: CallSize,
    /// True if it announces this process.
    announces: bool,
    /// The leases and debts whose slots are moving to this server.
    redirected: BTreeSet<LeaseRef>,
    redirected_debts: BTreeSet<DebtId>,
    releases: Vec<DebtId>,
    refreshes: Vec<LeaseRef>,
    acquires: Vec<LeaseRef>,
}

impl Draft {
    /// Adds a command, and notes what it names.
    fn add(&mut self, command: Command, items: Items) {
        self.commands.push(command);
        self.flight.items.push(items);
    }

    /// Lets the next command run although its slot is moving to the server.
    fn add_asking_if(&mut self, is_moving: bool) {
        if is_moving {
            self.add(Command::Asking, Items::Asking);
        }
    }
}

impl Core {
    /// The next call of a runtime: releases, refreshes, acquires (polls and claims), announcements, and the wait for
    /// replicas.
    pub fn poll_call(&mut self, now: Time, from: RuntimeId) -> Option<Call> {
        self.now = now;
        let mut servers = 0..self.servers.len();
        servers.find_map(|server| self.call_to(from, server))
    }

    /// A call for a claim that has just been made. `None` if it would include other claims, or a release that a task
    /// waits for (rule 17), or if releases are urgent.
    pub(super) fn call_alone(&mut self, at: LeaseRef) -> Option<Call> {
        self.lease(at)?;
        let (from, server) = (self.permits[at.0].from, self.target_of(at));
        let connection = self.connections.get(&(from, server))?;
        let is_only = connection.queues.has_only_claim(at);
        let is_alone = is_only && !self.servers[server].releases_now;
        let is_alone = is_alone && self.sends_for_no_other_task(server, at.0);
        is_alone.then(|| self.call_to(from, server)).flatten()
    }

    /// A call that a task sends for the release that it waits for, with other waiting releases that no task waits for.
    /// `None` if the connection is busy, or if another task waits for a release in the same queue. Then another runtime
    /// or the thread sends the release.
    pub fn release_alone(&mut self, now: Time, from: RuntimeId, id: PermitId) -> Option<Call> {
        self.now = now;
        let debt = *self.permits.get(id)?.ended()?.debts.first()?;
        let server = self.debts.get(debt)?.waits()?;
        let connection = self.connections.get(&(from, server))?;
        let has_claims = !connection.queues.is_empty(SendQueue::Claims);
        let is_idle = connection.is_connected && connection.in_flight == 0 && !has_claims;
        let is_alone = self.sends_for_no_other_task(server, id);
        let can_send = is_idle && is_alone && self.servers[server].is_clock_known();
        can_send.then(|| self.make_call(from, server)).flatten()
    }

    /// True if the next call to a server carries no release that another task waits for (rule 17). Also false if many
    /// releases wait, because each claim and each awaited release calls this, so it must be quick.
    fn sends_for_no_other_task(&self, server: usize, sender: PermitId) -> bool {
        let is_of_other = |id: &DebtId| {
            let debt = self.debts.get(*id);
            let permit = debt.and_then(|debt| debt.permit);
            permit.is_some_and(|permit| permit != sender && self.permits[permit].is_awaited())
        };
        let waiting = &self.servers[server].releases;
        waiting.len() <= MOST_CLAIMS && !waiting.iter().any(is_of_other)
    }

    fn call_to(&mut self, runtime: RuntimeId, server: usize) -> Option<Call> {
        let may_send = self.may_send(runtime, server);
        may_send.then(|| self.make_call(runtime, server)).flatten()
    }

    fn make_call(&mut self, runtime: RuntimeId, server: usize) -> Option<Call> {
        let connection = self.connections.get(&(runtime, server))?;
        let flight = Flight {
            id: CallId(self.last_call + 1),
            runtime,
            server,
            generation: connection.generation,
            sent: self.now,
            deadline: self.now + self.settings.timeout,
            ..Flight::default()
        };
        let mut draft = Draft {
            flight,
            announces: runtime == THREAD && mem::take(&mut self.servers[server].announces),
            ..Draft::default()
        };
        match (
            self.servers[server].is_clock_known(),
            self.is_in_outage(server),
        ) {
            (true, false) => self.fill(&mut draft),
            // A probe (rule 11).
            (true, true) if draft.announces => self.fill_releases(&mut draft),
            _ => {}
        }
        self.finish(draft)
    }

    /// True if releases wait that the next runtime that enters the core should send.
    pub fn has_urgent_releases(&self) -> bool {
        !self.is_closed && self.servers.iter().any(|server| server.releases_now)
    }

    /// True if a runtime has something to send now.
    pub fn has_call(&self, from: RuntimeId) -> bool {
        let mut servers = 0..self.servers.len();
        servers.any(|server| self.may_send(from, server))
    }

    fn may_send(&self, runtime: RuntimeId, number: usize) -> bool {
        let (server, is_thread) = (&self.servers[number], runtime == THREAD);
        let Some(connection) = self.connections.get(&(runtime, number)) else {
            return false;
        };
        let waits = |queue| !connection.queues.is_empty(queue);
        let of_thread = waits(SendQueue::Refreshes) || waits(SendQueue::Polls);
        // The first runtime that enters sends them. After a shutdown only the thread does: the process may be about to
        // end, and its runtimes end before the thread.
        let releases = server.releases_now && (is_thread || !self.is_closed);
        // Only claims wait for the limits (rule 18).
        let claims = waits(SendQueue::Claims) && self.need_not_wait_for_limits();
        let serves = server.is_clock_known() && !self.is_in_outage(number);
        let has_work = serves && (of_thread || releases || claims);
        let most = match (is_thread, releases) {
            (true, _) => connection.most_calls_of_thread(server.releases_now),
            (false, true) => MORE_CALLS,
            // Without urgent releases, only gathered claims make a runtime send a call.
            (false, false) => 0,
        };
        (has_work || is_thread && server.announces) && connection.can_send(most)
    }

    /// Adds the waiting work, as far as it fits.
    fn fill(&mut self, draft: &mut Draft) {
        self.fill_releases(draft);
        if draft.flight.runtime == THREAD {
            while draft.refreshes.len() < MOST_DUE && self.add_next(draft, SendQueue::Refreshes) {}
            // A poll takes the server some 15 µs, so this call blocks other clients for a millisecond at most.
            while draft.acquires.len() < MOST_CLAIMS && self.add_next(draft, SendQueue::Polls) {}
        }
        if self.need_not_wait_for_limits() {
            while draft.acquires.len() < MOST_CLAIMS && self.add_next(draft, SendQueue::Claims) {}
        }
    }

    fn fill_releases(&mut self, draft: &mut Draft) {
        while draft.releases.len() < MOST_DUE && self.add_next_release(draft) {}
        self.servers[draft.flight.server].note_releases_sent();
    }

    /// Puts the first release that waits into a call. Returns false if none is left, or if it does not fit.
    fn add_next_release(&mut self, draft: &mut Draft) -> bool {
        let server = draft.flight.server;
        let Some(&id) = self.servers[server].releases.front() else {
            return false;
        };
        // Other entries are out of date: the release was sent, the debt waits elsewhere, or is paid.
        let waits = |debt: &Debt| debt.waits() == Some(server);
        if self.debts.get(id).is_some_and(waits) && !self.add_release(draft, id) {
            return false;
        }
        self.servers[server].releases.pop_front();
        true
    }

    /// Puts the first lease of a queue into a call. Returns false if none is left, or if it does not fit.
    fn add_next(&mut self, draft: &mut Draft, queue: SendQueue) -> bool {
        let Some(at) = self.connection_of(draft).queues.first(queue) else {
            return false;
        };
        let server = draft.flight.server;
        let waits = |lease: &mut Lease| lease.waits_in(queue, server);
        if !self.lease(at).is_some_and(waits) {
            // The entry is out of date: the lease was sent, waits elsewhere, or is over.
            self.connection_of(draft).queues.pop(queue);
            return true;
        };
        // Since it was queued, its server may have failed, or other claims may have filled the share.
        let has_room = queue != SendQueue::Claims || !self.is_beyond_share(at.0);
        if has_room && !self.add_lease(draft, at, queue) {
            return false;
        }
        self.connection_of(draft).queues.pop(queue);
        self.permits[at].reschedule(self.now);
        match queue {
            SendQueue::Claims if has_room => self.count(at.0),
            // The claim's timer decides it. Nothing is decided here, because the call may have a narrower lease of the
            // claim.
            SendQueue::Claims => self.set_timer(at.0),
            _ => {}
        }
        true
    }

    fn connection_of(&mut self, draft: &Draft) -> &mut ConnectionState {
        self.connection(draft.flight.runtime, draft.flight.server)
    }

    /// Puts a lease into a call, behind the unanswered releases of its keys if it acquires (rule 4). Returns false if
    /// it does not fit. Releases that did fit stay in this call.
    fn add_lease(&mut self, draft: &mut Draft, at: LeaseRef, queue: SendQueue) -> bool {
        let redirect = self.permits[at].route.redirect;
        if matches!(queue, SendQueue::Polls | SendQueue::Claims) {
            self.put_under_limits(at);
            for debt in self.debts_to_release_first(draft, at) {
                if !self.add_release(draft, debt) {
                    return false;
                }
                draft.redirected_debts.extend(redirect.map(|_| debt));
            }
            for level in self.permits[at.0].levels_of(at.1) {
                self.keys[level.key].released_in = draft.flight.id;
            }
        }
        if !add_size(draft, self.levels_of(at)) {
            return false;
        }
        draft.redirected.extend(redirect.map(|_| at));
        self.permits[at].route.redirect = None;
        match queue {
            SendQueue::Refreshes => draft.refreshes.push(at),
            SendQueue::Polls | SendQueue::Claims => draft.acquires.push(at),
        }
        true
    }

    /// Puts the release of a debt into a call. Returns false if it does not fit.
    fn add_release(&mut self, draft: &mut Draft, id: DebtId) -> bool {
        let debt = &mut self.debts[id];
        let fits = add_size(draft, &debt.levels);
        if fits {
            debt.note_sent(&draft.flight);
            draft.releases.push(id);
            draft
                .redirected_debts
                .extend(debt.route.redirect.take().map(|_| id));
        }
        fits
    }

    /// The unsettled debts for a lease's keys, except those that are released in this call, or before it on the same
    /// connection (rule 4).
    fn debts_to_release_first(&self, draft: &Draft, at: LeaseRef) -> BTreeSet<DebtId> {
        let levels = self.levels_of(at).iter();
        let keys = levels.map(|level| &self.keys[level.key]);
        let keys = keys.filter(|key| key.released_in != draft.flight.id);
        let all = keys.flat_map(|key| key.debts.iter().copied());
        // A server that a slot moves to may refuse the earlier release, and run the acquire once the slot has moved.
        let is_moving = self.permits[at].route.redirect.is_some();
        let is_before = |id: &DebtId| {
            let debt = &self.debts[*id];
            debt.is_released_in(draft.flight.id)
                || !is_moving && debt.is_released_before(&draft.flight)
        };
        all.filter(|debt| !is_before(debt)).collect()
    }

    /// Makes the commands, and notes what they name.
    fn finish(&mut self, mut draft: Draft) -> Option<Call> {
        self.release_commands(&mut draft);
        self.refresh_commands(&mut draft);
        self.acquire_commands(&mut draft);
        if draft.announces {
            self.presence_commands(&mut draft);
        }
        if draft.commands.is_empty() {
            return None;
        }
        self.confirm_command(&mut draft);
        let Draft {
            mut flight,
            commands,
            ..
        } = draft;
        (flight.acquires, flight.units) = (draft.acquires.len(), draft.size.units);
        flight.may_stall = flight.runtime != THREAD && flight.acquires == 0;
        let call = Call {
            id: flight.id,
            runtime: flight.runtime,
            server: flight.server,
            commands,
            progress: flight.progress.clone(),
        };
        self.last_call = call.id.0;
        self.connection(flight.runtime, flight.server).send(&flight);
        self.calls.insert(call.id, flight);
        Some(call)
    }

    /// Adds the commands of an announcement. Each key of the store has a separate command (rule 20), because a server
    /// refuses a command with several keys while one of their slots moves. A server whose clock is not known, or that
    /// has none of the keys, gets a command without a key, which reports its time.
    fn presence_commands(&mut self, draft: &mut Draft) {
        let server = draft.flight.server;
        if server == self.counting_server() && self.membership == Membership::Leaving {
            draft.add(Command::Leave, Items::Leave);
        }
        let keys = self.store_keys().into_iter();
        let mut keys: Vec<_> = keys
            .filter(|(key, slot)| self.serves_key(*key, *slot, server))
            .collect();
        if self.is_in_outage(server) {
            keys.retain(|(key, _)| *key != StoreKey::Process);
        }
        if keys.is_empty() || !self.servers[server].is_clock_known() {
            draft.add(Command::Presence(Vec::new()), Items::Presence(None));
        }
        for (key, _) in keys {
            if self.store_redirects.remove(&key) == Some(server) {
                draft.add(Command::Asking, Items::Asking);
            }
            let part = match key {
                StoreKey::Clock => Part::Clock(self.highest.floor(self.now)),
                StoreKey::Processes => Part::Processes,
                StoreKey::Limits => Part::Limits(self.limits.version()),
                StoreKey::Process => Part::Process,
            };
            draft.add(Command::Presence(vec![part]), Items::Presence(Some(key)));
        }
    }

    /// The store keys that this process reads or writes, and their slots.
    fn store_keys(&self) -> Vec<(StoreKey, u16)> {
        let [clock, processes] = self.settings.slots_of_store;
        let stays = !self.has_left();
        let process = self.settings.slot_of_process.filter(|_| stays);
        let keys = [
            process.map(|slot| (StoreKey::Process, slot)),
            self.settings.claims.then_some((StoreKey::Clock, clock)),
            stays.then_some((StoreKey::Processes, processes)),
            stays.then_some((StoreKey::Limits, processes)),
        ];
        keys.into_iter().flatten().collect()
    }

    /// True if the key's next command goes to this server: the redirect, if any, otherwise the owner of the slot.
    fn serves_key(&self, key: StoreKey, slot: u16, server: usize) -> bool {
        let redirect = self.store_redirects.get(&key).copied();
        redirect.unwrap_or(self.slots.owner_of(slot)) == server
    }

    /// Ends a call with a wait for replicas, unless it has only releases (rule 15).
    fn confirm_command(&self, draft: &mut Draft) {
        let is_release = |items: &Items| matches!(items, Items::Release(..) | Items::Asking);
        let replicas = self.settings.replicas;
        if replicas > 0 && !draft.flight.items.iter().all(is_release) {
            let within = self.settings.timeout / 2;
            draft.add(Command::Confirm { replicas, within }, Items::Confirm);
        }
    }

    fn release_commands(&self, draft: &mut Draft) {
        let debt = |id: &DebtId| &self.debts[*id];
        let is_awaited = |debt: &Debt| debt.permit.is_some_and(|id| self.permits[id].is_awaited());
        let with_answer = draft.releases.iter().any(|id| is_awaited(debt(id)));
        let commands = grouped(&draft.releases, |id| {
            let is_alone = debt(id).route.is_alone.then_some(*id);
            (
                debt(id).route.slot,
                draft.redirected_debts.contains(id),
                is_alone,
                debt(id).levels.iter().any(ClaimedLevel::is_of_budget),
            )
        });
        for ids in commands {
            draft.add_asking_if(draft.redirected_debts.contains(&ids[0]));
            let levels = ids.iter().map(|id| (*id, &debt(id).levels[..]));
            let (mut groups, order) = self.groups(levels);
            let units = groups.iter_mut().flat_map(|group| &mut group.permits);
            for (units, id) in units.zip(&order) {
                if let Some(reservation) = &mut units.reservation {
                    reservation.keeps_member = !debt(id).last_release_settles();
                }
            }
            let release = Command::Release {
                with_answer,
                floor: self.highest.floor(draft.flight.sent),
                groups,
            };
            let settled = order
                .into_iter()
                .map(|id| (id, debt(&id).last_release_settles()));
            let items = Items::Release(debt(&ids[0]).route.slot, settled.collect());
            draft.add(release, items);
        }
    }

    /// Groups leases by command. The leases of a command have one slot, all or none of them a redirect, and one length.
    /// A lease after an error of a key has a separate command (rule 16), and leases with budgets have a separate
    /// script.
    fn leases_by_command(&self, draft: &Draft, all: &[LeaseRef]) -> Vec<Vec<LeaseRef>> {
        grouped(all, |at| {
            let lease = &self.permits[*at];
            let is_alone = lease.route.is_alone.then_some(*at);
            let is_redirected = draft.redirected.contains(at);
            let with_budgets = self.levels_of(*at).iter().any(ClaimedLevel::is_of_budget);
            let command = (lease.route.slot, is_redirected, self.length(*at), is_alone);
            (command, with_budgets)
        })
    }

    /// How long a lease that is sent now lasts. Before its claim is whole, that is how long a waiter counts as alive.
    fn length(&self, LeaseRef(id, number): LeaseRef) -> Duration {
        if self.permits[id].gets_full_length(number) {
            self.settings.lease
        } else {
            self.settings.alive()
        }
    }

    fn refresh_commands(&mut self, draft: &mut Draft) {
        for all in self.leases_by_command(draft, &draft.refreshes) {
            draft.add_asking_if(draft.redirected.contains(&all[0]));
            let lasts = self.length(all[0]);
            for at in &all {
                self.permits[*at].note_refresh(&draft.flight, lasts);
            }
            let (groups, order) = self.groups(all.iter().map(|at| (*at, self.levels_of(*at))));
            let items = Items::Refresh(self.permits[all[0]].route.slot, order);
            draft.add(Command::Refresh { lasts, groups }, items);
        }
    }

    fn acquire_commands(&mut self, draft: &mut Draft) {
        for mut all in self.leases_by_command(draft, &draft.acquires) {
            draft.add_asking_if(draft.redirected.contains(&all[0]));
            self.sort_by_key(&mut all);
            let claims = all.iter().map(|at| self.wanted(*at)).collect();
            let lasts = self.length(all[0]);
            for at in &all {
                self.permits[at.0].note_repeat(at.1);
                self.permits[*at].note_acquire(&draft.flight, lasts);
            }
            let acquire = Command::Acquire {
                lasts,
                // Rule 2.
                runs_until: self.servers[draft.flight.server].last_ms_before(draft.flight.deadline),
                floor: self.highest.floor(draft.flight.sent),
                claims,
            };
            draft.add(
                acquire,
                Items::Acquire(self.permits[all[0]].route.slot, all),
            );
        }
    }

    /// Puts claims of one level for the same semaphore behind each other, because a script grants them together.
    /// Otherwise their order stays.
    fn sort_by_key(&self, all: &mut [LeaseRef]) {
        let levels = |at: &LeaseRef| self.levels_of(*at);
        if all.iter().all(|at| levels(at).len() == 1) {
            all.sort_by_key(|at| levels(at)[0].key);
        }
    }

    fn wanted(&self, at: LeaseRef) -> Vec<Wanted> {
        let (permit, lease) = (&self.permits[at.0], &self.permits[at]);
        let wanted = lease.levels.clone().map(|at| {
            let level = &permit.levels[at];
            let position = permit.wait(level, self.now).map(|wait| Position {
                alive: self.settings.alive(),
                max_waiting: wait.max_waiting,
                arrival: lease.arrival_at(at),
                head_start: wait.head_start,
            });
            Wanted {
                name: Arc::clone(&self.keys[level.key].name),
                units: level.units.clone(),
                position,
                standing: if !permit.is_claim() {
                    Standing::Granted
                } else if lease.remote.may_exist() || !level.units.id.name.is_first() {
                    Standing::Sent
                } else {
                    Standing::New
                },
            }
        });
        wanted.collect()
    }

    /// Groups units by semaphore. Also returns the owner of each unit, a lease or a debt, in the same order.
    fn groups<'a, T: Copy>(
        &self,
        all: impl Iterator<Item = (T, &'a [ClaimedLevel])>,
    ) -> (Vec<Group>, Vec<T>) {
        let units = all.flat_map(|(owner, levels)| {
            let units = levels.iter().map(|level| (level.key, &level.units));
            units.map(move |(key, units)| (key, units, owner))
        });
        let mut units: Vec<(usize, &LeaseUnits, T)> = units.collect();
        units.sort_by_key(|(key, ..)| *key);
        let order = units.iter().map(|(.., owner)| *owner).collect();
        let groups = units.chunk_by(|(one, ..), (other, ..)| one == other);
        let groups = groups.map(|group| {
            let units = group.iter().map(|(_, units, _)| (*units).clone());
            Group {
                name: Arc::clone(&self.keys[group[0].0].name),
                permits: units.collect(),
            }
        });
        (groups.collect(), order)
    }
}

/// Adds levels to the size of a call, unless that is too much.
fn add_size(draft: &mut Draft, levels: &[ClaimedLevel]) -> bool {
    let units = levels.iter().map(|level| level.units.count() as usize);
    draft.size.add(levels.len(), units.sum())
}

/// Groups items for which `command` returns the same.
fn grouped<T: Copy, G: Ord>(all: &[T], command: impl Fn(&T) -> G) -> Vec<Vec<T>> {
    match all {
        [] => return Vec::new(),
        [first, rest @ ..] if rest.iter().all(|item| command(item) == command(first)) => {
            return vec![all.to_vec()];
        }
        _ => {}
    }
    let mut groups = BTreeMap::<_, Vec<T>>::new();
    for item in all {
        groups.entry(command(item)).or_default().push(*item);
    }
    groups.into_values().collect()
}
