//! What a runtime sends next.

use super::{
    Core, MOST_DUE, Stay,
    call::{Bill, Call, Flight, Items, Left, Work},
    id::{At, CallId, Connection, PermitId, RuntimeId, THREAD},
    lane::{Hurry, MOST_CLAIMS},
    lease::{MayRun, Queue, State},
    time::Time,
};
use crate::redis::protocol::{Command, Group, Position, Wanted};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A call that is being made.
#[derive(Default)]
struct Draft {
    id: CallId,
    now: Time,
    server: usize,
    runtime: RuntimeId,
    connection: Connection,
    left: Left,
    bill: Bill,
    presence: bool,
    /// Whose slots are moving to this server.
    asking: BTreeSet<At>,
    releases: Vec<At>,
    refreshes: Vec<At>,
    acquires: Vec<At>,
}

impl Core {
    /// What a runtime sends now, until when an answer counts, and to which server. In the order of the commands:
    /// releases, refreshes, polls and claims.
    pub(in crate::redis) fn poll_call(&mut self, now: Time, from: RuntimeId) -> Option<Call> {
        let mut servers = 0..self.servers.len();
        servers.find_map(|server| self.call_to(now, from, server))
    }

    /// A call for a claim that has just been made, unless others wait with it: for a claim, or for a release.
    pub(super) fn call_alone(&mut self, now: Time, at: At) -> Option<Call> {
        let (from, server) = (self.permit(at.0)?.from, self.server_of(at));
        let lane = self.lanes.get(&(from, server))?;
        let is_alone = lane.claims == [at] && !self.servers[server].releases_now;
        is_alone.then(|| self.call_to(now, from, server)).flatten()
    }

    /// A call for a release that its own task waits for, over a connection that is idle, unless another task waits for
    /// a release that would travel with it. The thread carries it else.
    pub(in crate::redis) fn release_alone(
        &mut self,
        now: Time,
        from: RuntimeId,
        id: PermitId,
    ) -> Option<Call> {
        let at = At(id, 0);
        let server = self.lease(at)?.waits()?.1;
        let lane = self.lanes.get(&(from, server))?;
        let is_idle = lane.is_connected && lane.in_flight == 0 && lane.claims.is_empty();
        let waiting = &self.servers[server].releases;
        let tells = |other: &At| {
            let permit = self.permits.get(other.0.slot);
            permit.is_some_and(|permit| permit.id == other.0 && permit.tells_release)
        };
        let is_alone = waiting.iter().all(|other| *other == at || !tells(other));
        let is_alone = waiting.len() <= MOST_CLAIMS && is_alone;
        let can_send = is_idle && is_alone && self.servers[server].is_known();
        can_send.then(|| self.make(now, from, server)).flatten()
    }

    fn call_to(&mut self, now: Time, runtime: RuntimeId, server: usize) -> Option<Call> {
        let may_send = self.may_send(runtime, server);
        may_send.then(|| self.make(now, runtime, server)).flatten()
    }

    fn make(&mut self, now: Time, runtime: RuntimeId, server: usize) -> Option<Call> {
        let lane = self.lanes.get(&(runtime, server))?;
        let mut draft = Draft {
            id: CallId(self.last_call + 1),
            now,
            server,
            runtime,
            connection: (runtime, server, lane.generation),
            ..Draft::default()
        };
        draft.presence = runtime == THREAD && std::mem::take(&mut self.servers[server].announces);
        let is_ready = self.servers[server].is_known() && self.knows_limits();
        match (is_ready, self.is_open(server)) {
            (true, false) => self.fill(&mut draft),
            (true, true) if draft.presence => self.fill_releases(&mut draft),
            _ => {}
        }
        self.finish(&draft)
    }

    /// Whether a runtime has something to send now.
    pub(in crate::redis) fn has_call(&self, from: RuntimeId) -> bool {
        let mut servers = 0..self.servers.len();
        servers.any(|server| self.may_send(from, server))
    }

    fn may_send(&self, runtime: RuntimeId, number: usize) -> bool {
        let (server, is_thread) = (&self.servers[number], runtime == THREAD);
        let Some(lane) = self.lanes.get(&(runtime, number)) else {
            return false;
        };
        let is_due = !server.refreshes.is_empty() || !server.polls.is_empty();
        let of_thread = is_thread && (is_due || server.releases_now);
        let serves = server.is_known() && self.knows_limits() && !self.is_open(number);
        let has_work = serves && (of_thread || !lane.claims.is_empty());
        let hurry = if is_thread {
            server.hurry()
        } else {
            Hurry::None
        };
        (has_work || is_thread && server.announces) && lane.is_open(hurry)
    }

    /// Puts in what waits, as far as it fits.
    fn fill(&mut self, draft: &mut Draft) {
        self.fill_releases(draft);
        if draft.runtime == THREAD {
            while draft.refreshes.len() < MOST_DUE && self.put_next(draft, Queue::Refreshes) {}
            while draft.acquires.len() < MOST_DUE && self.put_next(draft, Queue::Polls) {}
        }
        while draft.acquires.len() < MOST_CLAIMS && self.put_next(draft, Queue::Claims) {}
    }

    fn fill_releases(&mut self, draft: &mut Draft) {
        while draft.releases.len() < MOST_DUE && self.put_next(draft, Queue::Releases) {}
        self.servers[draft.server].carried();
    }

    /// Puts the first of a queue into a call. `false`: nothing is left, or it does not fit.
    fn put_next(&mut self, draft: &mut Draft, queue: Queue) -> bool {
        let Some(at) = self.first(draft, queue) else {
            return false;
        };
        let work = self
            .lease(at)
            .filter(|lease| lease.waits() == Some((queue, draft.server)));
        let Some(work) = work.and_then(|lease| lease.work()) else {
            // It has been sent, waits elsewhere, or is over.
            self.pop(draft, queue);
            return true;
        };
        // Since it came its server may have failed, or others have left.
        let has_room = queue != Queue::Claims || !self.is_beyond_share(draft.now, at.0);
        if has_room && !self.put(draft, at, work) {
            return false;
        }
        self.pop(draft, queue);
        if let Some(lease) = self.lease(at) {
            lease.waits_in = None;
        }
        match queue {
            Queue::Claims if has_room => self.count(at.0),
            Queue::Claims => self.hold_back(draft.now, at),
            _ => {}
        }
        true
    }

    fn first(&mut self, draft: &Draft, queue: Queue) -> Option<At> {
        let server = &self.servers[draft.server];
        match queue {
            Queue::Releases => server.releases.front().copied(),
            Queue::Refreshes => server.refreshes.first().map(|(_, at)| *at),
            Queue::Polls => server.polls.front().copied(),
            Queue::Claims => self
                .lane(draft.runtime, draft.server)
                .claims
                .front()
                .copied(),
        }
    }

    fn pop(&mut self, draft: &Draft, queue: Queue) {
        let server = &mut self.servers[draft.server];
        match queue {
            Queue::Releases => drop(server.releases.pop_front()),
            Queue::Refreshes => drop(server.refreshes.pop_first()),
            Queue::Polls => drop(server.polls.pop_front()),
            Queue::Claims => drop(self.lane(draft.runtime, draft.server).claims.pop_front()),
        }
    }

    /// Puts a lease into a call; one that acquires comes behind the releases of its keys. `false`: not all fits,
    /// and the rest goes with the next call over the same connection.
    fn put(&mut self, draft: &mut Draft, at: At, work: Work) -> bool {
        let asks = self.permits[at.0.slot].leases[at.1].asks;
        if work == Work::Acquire {
            self.put_under_limits(draft.now, at);
            for release in self.releases_before(draft, at) {
                if !self.adds(draft, release) {
                    return false;
                }
                draft.asking.extend(asks.map(|_| release));
                self.put_release(draft, release);
            }
            for level in self.permits[at.0.slot].levels_of(at.1) {
                self.keys[level.key].released_in = draft.id;
            }
        }
        if !self.adds(draft, at) {
            return false;
        }
        draft.asking.extend(asks.map(|_| at));
        self.permits[at.0.slot].leases[at.1].asks = None;
        match work {
            Work::Release => self.put_release(draft, at),
            Work::Refresh => draft.refreshes.push(at),
            Work::Acquire => draft.acquires.push(at),
        }
        true
    }

    /// Adds a lease to the bill of a call, unless that is too much.
    fn adds(&self, draft: &mut Draft, at: At) -> bool {
        let (levels, units) = self.cost(at);
        draft.bill.add(levels, units)
    }

    fn put_release(&mut self, draft: &mut Draft, at: At) {
        if let Some(lease) = self.lease(at) {
            lease.release_sent(draft.now, (draft.id, draft.connection, &draft.left));
        }
        draft.releases.push(at);
    }

    /// How many levels a lease has, and how many units.
    fn cost(&self, At(id, lease): At) -> (usize, usize) {
        let levels = self.permits[id.slot].levels_of(lease);
        let units = levels.iter().map(|level| level.units.units() as usize);
        (levels.len(), units.sum())
    }

    /// The releases of a lease's keys that have no answer yet, and are neither in this call nor before it on
    /// the same connection. So this process sees its own releases.
    fn releases_before(&self, draft: &Draft, At(id, lease): At) -> BTreeSet<At> {
        let levels = self.permits[id.slot].levels_of(lease).iter();
        let keys = levels.map(|level| &self.keys[level.key]);
        let keys = keys.filter(|key| key.released_in != draft.id);
        let all = keys.flat_map(|key| key.releases.iter().copied());
        let is_before = |at: &At| self.is_released_by(*at, draft);
        all.filter(|at| !is_before(at)).collect()
    }

    /// Whether a release of a lease is in this call, or before it on the same connection, and another one would
    /// settle no more than that.
    fn is_released_by(&self, At(id, lease): At, draft: &Draft) -> bool {
        let lease = &self.permits[id.slot].leases[lease];
        let State::Released(released) = &lease.state else {
            return false;
        };
        released
            .sent_in
            .as_ref()
            .is_some_and(|(call, connection, left)| {
                let is_same = *connection == draft.connection && left.is_noted();
                let is_before = released.in_flight > 0 && is_same;
                let settles = !released.is_settled && lease.is_settled(draft.now, draft.connection);
                *call == draft.id || is_before && !settles
            })
    }

    /// Makes the commands, and notes what they name.
    fn finish(&mut self, draft: &Draft) -> Option<Call> {
        let mut flight = self.take_off(draft);
        let mut commands = Vec::new();
        self.release_command(draft, &mut commands, &mut flight);
        self.refresh_command(draft, &mut commands, &mut flight);
        self.acquire_command(draft, &mut commands, &mut flight);
        if draft.presence {
            self.presence_commands(draft, &mut commands, &mut flight);
        }
        if commands.is_empty() {
            return None;
        }
        self.confirm_command(&mut commands, &mut flight);
        let (id, deadline) = (flight.id, flight.deadline);
        self.last_call = id.0;
        let keeps_order = self.settings.is_own;
        let lane = self.lane(draft.runtime, draft.server);
        lane.send(draft.now, (flight.claims, flight.units), keeps_order);
        self.calls.insert(id, flight);
        Some(Call {
            id,
            server: draft.server,
            commands,
            deadline,
            left: draft.left.clone(),
        })
    }

    /// Each of the store's keys is on one server. The others only tell their time.
    fn presence_commands(&self, draft: &Draft, commands: &mut Vec<Command>, flight: &mut Flight) {
        let [clock, processes] = self.settings.slots_of_store;
        let is_own = |slot| self.slots.server_of(slot) == draft.server;
        let has_clock = self.settings.claims && is_own(clock);
        let counts = is_own(processes);
        if counts && self.stay == Stay::Leaving {
            commands.push(Command::Leave);
            flight.items.push(Items::Leave);
        }
        let counts = counts && self.stay == Stay::Here;
        let says_who = self.stay == Stay::Here && !self.is_open(draft.server);
        let slot = self.settings.slot_of_process;
        if let Some(slot) = slot.filter(|slot| says_who && is_own(*slot)) {
            commands.push(Command::Introduce);
            flight.items.push(Items::Presence(Some(slot)));
        }
        let highest = Some(self.highest.floor(draft.now)).filter(|_| has_clock);
        let parts = match has_clock && counts && clock != processes {
            true => vec![(highest, false), (None, true)],
            false => vec![(highest, counts)],
        };
        for (highest, counts) in parts {
            commands.push(Command::Presence {
                highest,
                counts,
                limits: self.limits.version(),
                part: (!self.settings.is_own).then_some(draft.server),
            });
            let slot = highest.map(|_| clock).or(counts.then_some(processes));
            flight.items.push(Items::Presence(slot));
        }
    }

    /// What a failover may forget does not count, but for releases.
    fn confirm_command(&self, commands: &mut Vec<Command>, flight: &mut Flight) {
        let is_release = |items: &Items| matches!(items, Items::Release(_) | Items::Asking);
        let replicas = self.settings.replicas;
        if replicas > 0 && !flight.items.iter().all(is_release) {
            let within = self.settings.timeout / 2;
            commands.push(Command::Confirm { replicas, within });
            flight.items.push(Items::Confirm);
        }
    }

    fn take_off(&self, draft: &Draft) -> Flight {
        Flight {
            id: draft.id,
            runtime: draft.runtime,
            server: draft.server,
            sent: draft.now,
            deadline: draft.now + self.settings.timeout,
            claims: draft.acquires.len(),
            items: Vec::new(),
            units: draft.bill.units,
            left: draft.left.clone(),
        }
    }

    fn release_command(&mut self, draft: &Draft, commands: &mut Vec<Command>, flight: &mut Flight) {
        if draft.releases.is_empty() {
            return;
        }
        let tells = |at: &At| self.permits[at.0.slot].tells_release;
        let with_answer = draft.releases.iter().any(tells);
        for all in self.together(draft, &draft.releases) {
            ask(draft, &all, commands, flight);
            let (groups, order) = self.groups(all.into_iter());
            commands.push(Command::Release {
                with_answer,
                floor: self.highest.floor(draft.now),
                groups,
            });
            let settled = order.into_iter().map(|at| (at, self.is_last_word(at)));
            flight.items.push(Items::Release(settled.collect()));
        }
    }

    fn is_last_word(&self, At(id, lease): At) -> bool {
        let state = &self.permits[id.slot].leases[lease].state;
        matches!(state, State::Released(released) if released.is_settled)
    }

    /// Leases that one command may name: of one slot that is moving for all or for none, of one length, and with no
    /// known error.
    fn together(&self, draft: &Draft, all: &[At]) -> Vec<Vec<At>> {
        let group = |at: &At| {
            let lease = &self.permits[at.0.slot].leases[at.1];
            let is_asking = draft.asking.contains(at);
            let is_alone = lease.is_alone.then_some(*at);
            (lease.slot, is_asking, self.length(*at), is_alone)
        };
        if all.iter().all(|at| group(at) == group(&all[0])) {
            return vec![all.to_vec()];
        }
        let mut groups = BTreeMap::<_, Vec<At>>::new();
        for at in all {
            groups.entry(group(at)).or_default().push(*at);
        }
        groups.into_values().collect()
    }

    /// How long a lease that is sent now lasts: until the claim is whole, as long as a waiter counts as alive.
    fn length(&self, At(id, number): At) -> Duration {
        match self.permits[id.slot].needs_only(number) {
            true => self.settings.lease,
            false => self.settings.alive(),
        }
    }

    fn refresh_command(&mut self, draft: &Draft, commands: &mut Vec<Command>, flight: &mut Flight) {
        if draft.refreshes.is_empty() {
            return;
        }
        for all in self.together(draft, &draft.refreshes) {
            ask(draft, &all, commands, flight);
            let lasts = self.note_sent(draft, &all, (flight, Work::Refresh));
            let (groups, order) = self.groups(all.into_iter());
            commands.push(Command::Refresh { lasts, groups });
            flight.items.push(Items::Refresh(order));
        }
    }

    fn acquire_command(&mut self, draft: &Draft, commands: &mut Vec<Command>, flight: &mut Flight) {
        if draft.acquires.is_empty() {
            return;
        }
        for mut all in self.together(draft, &draft.acquires) {
            ask(draft, &all, commands, flight);
            self.sort_by_key(&mut all);
            let claims = all.iter().map(|at| self.wanted(draft.now, *at));
            let claims = claims.collect();
            let lasts = self.note_sent(draft, &all, (flight, Work::Acquire));
            commands.push(Command::Acquire {
                lasts,
                runs_until: self.servers[draft.server].at(flight.deadline),
                floor: self.highest.floor(draft.now),
                claims,
            });
            flight.items.push(Items::Acquire(all));
        }
    }

    /// Claims of one level for the same semaphore follow each other, in their order, because a script grants them together.
    fn sort_by_key(&self, all: &mut [At]) {
        let levels = |at: &At| self.permits[at.0.slot].levels_of(at.1);
        if all.iter().all(|at| levels(at).len() == 1) {
            all.sort_by_key(|at| levels(at)[0].key);
        }
    }

    /// Returns how long the leases last.
    fn note_sent(
        &mut self,
        draft: &Draft,
        all: &[At],
        (flight, work): (&Flight, Work),
    ) -> Duration {
        let length = self.length(all[0]);
        let run = MayRun {
            until: flight.deadline,
            connection: draft.connection,
            left: draft.left.clone(),
        };
        for At(id, lease) in all {
            let permit = &mut self.permits[id.slot];
            permit.leases[*lease].sent((flight.id, run.clone()), work, length);
        }
        length
    }

    fn wanted(&self, now: Time, At(id, number): At) -> Vec<Wanted> {
        let permit = &self.permits[id.slot];
        let lease = &permit.leases[number];
        let wanted = lease.levels.clone().map(|at| {
            let level = &permit.levels[at];
            let position = permit.wait(level, now).map(|wait| Position {
                alive: self.settings.alive(),
                max_waiting: wait.max_waiting,
                arrival: lease.arrival_at(at),
                head_start: wait.head_start,
            });
            Wanted {
                name: Arc::clone(&self.keys[level.key].name),
                units: level.units.clone(),
                position: position.filter(|_| !permit.is_decided()),
                is_known: lease.was_sent || level.units.is_renewed(),
            }
        });
        wanted.collect()
    }

    /// The units of leases by semaphore, and the lease of each in that order.
    fn groups(&self, all: impl Iterator<Item = At>) -> (Vec<Group>, Vec<At>) {
        let mut units: Vec<_> = all
            .flat_map(|at| {
                let levels = self.permits[at.0.slot].levels_of(at.1).iter();
                levels.map(move |level| (level.key, &level.units, at))
            })
            .collect();
        units.sort_by_key(|(key, ..)| *key);
        let order = units.iter().map(|(.., at)| *at).collect();
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

/// The next command runs although the slot of these leases is moving to the server.
fn ask(draft: &Draft, all: &[At], commands: &mut Vec<Command>, flight: &mut Flight) {
    if draft.asking.contains(&all[0]) {
        commands.push(Command::Asking);
        flight.items.push(Items::Asking);
    }
}
