//! What this process has claimed, and what it does next: one synchronous state machine.
//!
//! The core decides everything and does nothing. It has no task, no thread, no lock, no socket, no clock and
//! no randomness: callers, servers and time come in as arguments, calls and events come out. So it can be run
//! through a million faults in seconds, and so are quinn-proto, rustls and str0m built.
//!
//! ```text
//! reply, end, weight, outage, moving, limiting, build ─> core ─> permit ─> lease ─> id, time ─> policy
//!                                                   ─> server ─> health
//!                                                   ─> slots, lane, key, call, limits
//! ```
//!
//! | | holds |
//! |---|---|
//! | [`Permit`] | the levels of a claim, and its leases from narrow to wide |
//! | [`Lease`] | a run of neighbouring levels that one script may name: acquired, refreshed and released together |
//! | [`Server`] | its clock, whether it works, and what waits to be sent to it |
//! | [`Lane`] | one runtime's connection to a server: the claims that wait for it, and calls in flight |
//! | [`Key`] | the units that this process has of a semaphore, and the releases of it that have no answer yet |
//!
//! Rules, and why each holds:
//!
//! 1. *One budget per claim*: its longest wait and two timeouts. It is a timer of the permit, which nothing
//!    moves.
//! 2. *A stale command cannot grant*: each acquire carries its own end by its server's clock, which is
//!    estimated from below. So what was [sent](call::Sent) ends when the call's time here does.
//! 3. *What may have run is released* until a release was answered that was sent after the last acquire could
//!    run, or behind it on the same connection. Nothing acquires a released lease: its state has no way back.
//! 4. *A process sees its own releases*: a call that acquires on a key begins with the releases of that key
//!    that have no answer yet, unless they travel before it on the same connection.
//! 5. *One lease is acquired after the other*, from narrow to wide, and the claim is granted when all are held.
//!    Until then each lasts as long as a waiter counts as alive, and every heartbeat refreshes it. One that is lost
//!    while the claim waits is wanted again, and what is wider is given back, so no claim waits for a narrow unit
//!    with a wide one in hand.
//! 6. *A lost lease comes back*: a lease that a refresh does not find is acquired again at once, without passing
//!    the queue. Its holder is told when that is refused, or at the end that it knew, whichever is first. One that
//!    was claimed with several units comes back under a new id: the server may have some of them yet, or have
//!    given some up. It comes back as a whole: where one of its levels was lost and has no room, its units of the others
//!    are free a moment before its holder is told. A strict permit is told first.
//! 7. *A call is over at its deadline*, whatever is reported later. As a timeout is a third of a lease at most, the end
//!    of a lease that is granted or refreshed is ahead.
//! 8. *A message counts* if its token is above that of the last answered poll and its provisional end is ahead.
//!    An answer to a poll that was sent before changes nothing, because only a wanted or waiting lease takes it. One
//!    that comes before the answer that its claim waits makes that claim poll at once.
//! 9. *A lease is in one acquire or refresh at a time*: [`Lease::queue`] names none while one is in flight.
//! 10. *A permit has one timer*: the list `due` has each permit once, at the least of its timers or before. A
//!     timer that moves ahead is found when the earlier one pops, so a permit that is released at once is filed
//!     once.
//! 11. *A call is evidence of the instant at which it was sent*: a failure counts unless a call that was sent later was
//!     answered, and an answer ends the failures of calls that were sent before. Only the thread's failures
//!     make an outage, because the runtime of a caller may stand still; a caller's failure makes a probe due.
//!     While there is an outage only probes are sent, one at a time, with the releases that wait, and the policy decides
//!     each claim.
//! 12. *A claim counts in its process's share* from when it is sent, and its permit until it is given up, whether or
//!     not its server has it; not while it waits in a queue. So where a policy shares, what is sent has room in the share
//!     from the first known failure until no process can still take the server for unavailable, and never takes
//!     another process's place.
//! 13. *What is added to a permit is a permit*, which lives and dies with it, and what is taken away is one that only
//!     has to be released. So a change of weight meets no fault that a claim and a release do not. A growth merges with
//!     earlier growths, so that a permit has at most 32 additions to a level. An id is acquired with
//!     all units that it was made with, so what has fewer is acquired under a new one, also if the old one was never sent.
//! 14. *A lease is where its slot is*, which is looked up when something is sent. A server that refuses a command because it
//!     has not the slot has changed nothing, so what the command named is sent again, as if for the first time.
//! 15. *What a failover may forget does not count*: with replicas each call that grants ends with a wait for them, and if too
//!     few have it, the call counts as one without an answer.
//! 16. *The mistake of one key is its own*: what travelled with it is sent again, each in a command of its own.
//! 17. *A caller carries nothing of others*, because its future may be polled no more: its own claim or release, and no
//!     release that another task waits for. All else is carried by tasks. If claims have waited for a quarter of a timeout and no call of
//!     their runtime has left or come back, the thread sends them. The thread also sends the releases of a call without
//!     claims that has had no answer for a quarter of a timeout.
//! 18. *A lease is acquired under the limits in force*, each time: an id has its limit, so where that has changed what is
//!     not held gets another id, and the call begins with the release of the old one. What waits is due when limits change.
//!     The server that counts processes reports them. Nothing is claimed before it was asked, unless it is failing or has
//!     refused to report them for a timeout.
//! 19. *The release of a full key is sent at once*, because a client that has read the end of its response may send the
//!     next request to another process. A key counts as full for ten seconds after an answer that left no room for
//!     another such claim, also while no lease of this process has it. The first runtime that enters the core sends the
//!     release: mostly the one that drops the permit, else the thread. While a runtime has several calls in flight, the
//!     release joins the next call instead, so that a busy process sends few calls.
//! 20. *A claim waits for its own keys only*: each key of the store is named by a separate command, so where its slot is
//!     moving or stuck nothing else is refused.

mod build;
mod call;
mod end;
mod health;
mod id;
mod key;
mod lane;
mod lease;
mod limiting;
mod limits;
mod moving;
mod outage;
mod permit;
mod policy;
mod reply;
mod server;
mod slots;
mod time;
mod weight;

pub(in crate::redis) use call::{Call, Failure};
pub(in crate::redis) use health::Outage;
pub(in crate::redis) use id::{CallId, PermitId, RuntimeId, THREAD};
pub(in crate::redis) use limits::LimitsEvent;
pub(in crate::redis) use permit::{Event, Level, Merge, Refusal, Wait};
pub use policy::WhenUnavailable;
pub(in crate::redis) use server::Change;
pub(in crate::redis) use time::{FOREVER, Settings, Time};

use crate::redis::protocol::{Answer, Message, Of, PermitId as UnitsOf, Tag};
use call::{Flight, Items, StoreKey};
use id::At;
use key::Keys;
use lane::Lane;
use lease::{Lease, Queue, State};
use limits::Limits;
use permit::{Own, Permit};
use policy::Live;
use server::{Highest, Server};
use slab::Slab;
use slots::Slots;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

/// How many timers one entry handles, and how many leases a call names of each kind, so that no entry holds up
/// the others for long.
const MOST_DUE: usize = 512;

/// Whether this process is counted among the live ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stay {
    #[default]
    Here,
    /// It says that it leaves.
    Leaving,
    Gone,
}

/// See the module docs.
#[derive(Debug, Default)]
pub(in crate::redis) struct Core {
    /// When it was last entered: the time of all that it does.
    now: Time,
    settings: Settings,
    permits: Slab<Permit>,
    /// The permits of claims that may wait in a queue, by their serials.
    waiters: BTreeMap<u64, PermitId>,
    /// In the order of their deadlines, which are that of their numbers.
    calls: BTreeMap<CallId, Flight>,
    /// What calls without an answer name under ids that their leases have given up since: each lease, and the permit of that.
    parts: BTreeMap<CallId, Vec<(At, At)>>,
    servers: Vec<Server>,
    slots: Slots,
    /// The servers that are asked once for keys of the store, because their slots are moving there.
    asks_of_store: BTreeMap<StoreKey, usize>,
    highest: Highest,
    lanes: BTreeMap<(RuntimeId, usize), Lane>,
    keys: Keys,
    /// Each permit that has a timer, once.
    due: BTreeSet<(Time, PermitId)>,
    events: VecDeque<(PermitId, Event)>,
    /// The outages that have begun or ended, each with its server.
    outages: VecDeque<(usize, Outage)>,
    /// The servers that have not answered a call in time, until the driver takes them.
    late_servers: BTreeSet<usize>,
    live: Live,
    limits: Limits,
    /// The first slot that a sweep has not visited: a server has lost leases, is unavailable, or is back, limits have
    /// changed, or this process claims no more.
    sweep: Option<usize>,
    is_closed: bool,
    stay: Stay,
    last_permit: u64,
    last_call: u64,
}

impl Core {
    pub(in crate::redis) fn new(settings: Settings) -> Self {
        let stay = match settings.claims {
            true => Stay::Here,
            false => Stay::Gone,
        };
        Self {
            settings,
            servers: vec![Server::default()],
            stay,
            ..Self::default()
        }
    }

    // Callers.

    /// Claims. The call, if there is one, names no other claim and no release that is waited for, and is for the
    /// caller's own task to carry: a task that is not polled again delays no other.
    pub(in crate::redis) fn acquire(
        &mut self,
        now: Time,
        from: RuntimeId,
        levels: &[Level],
    ) -> (PermitId, Option<Call>) {
        self.now = now;
        let id = self.next_id();
        let since = self.servers[self.slots.server_of(levels[0].slot)].at(now);
        let own = levels.iter().map(|level| {
            let of = Of::Claim(level.label.clone(), level.flow.clone());
            let units = UnitsOf::new(id.serial, level.limit, level.weight);
            let key = self.keys.number(&level.name);
            Own::new(key, units.tagged(Tag { since, of }), level.wait)
        });
        let own = own.collect();
        let leases = permit::leases(levels);
        let mut permit = Permit::new(id, (now, from), own, leases, &self.settings);
        permit.is_strict = levels.iter().any(|level| level.is_strict);
        self.claim(permit)
    }

    /// The id of the permit that is added next.
    fn next_id(&mut self) -> PermitId {
        self.last_permit += 1;
        let (slot, serial) = (self.permits.vacant_key(), self.last_permit);
        PermitId { slot, serial }
    }

    fn add(&mut self, permit: Permit) {
        for level in &permit.levels {
            self.keys[level.key].leases += 1;
        }
        self.permits.insert(permit);
    }

    /// The call, if there is one, is for the caller's own task.
    fn claim(&mut self, permit: Permit) -> (PermitId, Option<Call>) {
        let id = permit.id;
        // Its grant may be told before the answer that it waits.
        if permit.levels.iter().any(|level| level.wait.is_some()) {
            self.waiters.insert(id.serial, id);
        }
        self.add(permit);
        self.each_of(id, Self::put_under_limits);
        if self.is_closed {
            self.refuse(id, Refusal::Closed);
        } else if !self.refuse_if_heavy(id) {
            self.want(At(id, 0));
        }
        self.file(id);
        (id, self.call_alone(At(id, 0)))
    }

    /// Refuses all claims, and releases all permits, which are told as lost. Then this process leaves.
    pub(in crate::redis) fn shutdown(&mut self) {
        (self.is_closed, self.sweep) = (true, Some(0));
        for server in &mut self.servers {
            server.releases_now |= !server.releases.is_empty();
        }
    }

    /// The permits that were not released yet: the name of the narrowest semaphore, and the token.
    pub(in crate::redis) fn unreleased(&self) -> Vec<(Arc<str>, u64)> {
        let permits = self.permits.iter().map(|(_, permit)| permit);
        let unreleased = permits.map(|permit| {
            let level = &permit.levels[0];
            (Arc::clone(&self.keys[level.key].name), level.grant.0)
        });
        unreleased.collect()
    }

    /// Gives up a permit or a claim, at any time. With `tells` an event says whether it was held.
    pub(in crate::redis) fn release(&mut self, now: Time, id: PermitId, tells: bool) {
        self.now = now;
        let Some(permit) = self.permit(id) else {
            let told = tells.then_some((id, Event::Released(false)));
            return self.events.extend(told);
        };
        permit.tells_release |= tells;
        self.let_go(id);
    }

    // Servers.

    /// Takes the answers to a call, one for each command, or why there are none.
    pub(in crate::redis) fn handle_reply(
        &mut self,
        now: Time,
        id: CallId,
        reply: Result<Vec<Answer>, Failure>,
    ) {
        self.now = now;
        let Some(flight) = self.calls.remove(&id) else {
            return;
        };
        let lane = self.lane(flight.runtime, flight.server);
        lane.land(now, &flight);
        match reply {
            Ok(_) | Err(Failure::Abandoned) if now >= flight.deadline => {
                self.unanswered(&flight, Failure::TimedOut);
            }
            Ok(answers) if self.is_confirmed(&flight, &answers) => {
                self.answered(&flight, answers);
            }
            Ok(_) => self.unanswered(&flight, Failure::Unconfirmed),
            Err(failure) => self.unanswered(&flight, failure),
        }
        self.parts.remove(&id);
    }

    /// Takes a message.
    pub(in crate::redis) fn handle_message(&mut self, now: Time, message: Message) {
        self.now = now;
        match message {
            Message::Granted(serial, token, held) => {
                if let Some(id) = self.waiters.get(&UnitsOf::base(serial)) {
                    self.notified(*id, serial, token, held);
                }
            }
            Message::Subscribed => {
                (0..self.servers.len()).for_each(|server| self.look_again(now, server));
            }
            Message::Revoked(serial) => {
                let serial = UnitsOf::base(serial);
                let mut permits = self.permits.iter();
                let found = permits.find(|(_, permit)| permit.id.serial == serial);
                if let Some(id) = found.map(|(_, permit)| permit.id) {
                    self.end(id, Refusal::Revoked);
                }
            }
        }
    }

    /// Learns of a connection, or where slots are.
    pub(in crate::redis) fn handle_servers(&mut self, now: Time, change: Change) {
        self.now = now;
        if let Change::Connected(_, server)
        | Change::Replaced(_, server)
        | Change::Gone(_, server)
        | Change::NotConnected { server, .. } = change
        {
            self.know(server);
        }
        match change {
            Change::Slots(slots) => {
                for (slots, server) in slots {
                    self.put_slots(slots, server, now);
                }
            }
            Change::Connected(runtime, server) => self.connected(runtime, server),
            Change::Replaced(runtime, server) => {
                self.abandon(runtime, server);
                self.connected(runtime, server);
            }
            Change::Gone(runtime, server) => {
                self.lane(runtime, server).is_connected = false;
                self.hand_over(runtime, server);
                if runtime == THREAD {
                    self.stay_is_over(server);
                    // That is its failure, unless it has refused a connection.
                    if !self.servers[server].is_denied {
                        self.failed(server, now, true);
                    }
                }
            }
            Change::NotConnected {
                server,
                is_denied: true,
            } => self.denied(server),
            // A server that refused a connection before may be unreachable now: an outage, not a mistake.
            Change::NotConnected {
                server,
                is_denied: false,
            } => self.ends_denial(server),
        }
    }

    fn connected(&mut self, runtime: RuntimeId, server: usize) {
        self.lane(runtime, server).connect();
        if self.is_stuck(server) {
            let waiting = mem::take(&mut self.lane(THREAD, server).claims);
            self.lane(runtime, server).claims.extend(waiting);
        }
        if runtime == THREAD {
            // Messages may have been lost while there was none.
            self.look_again(self.now, server);
            self.servers[server].presence_at = Some(self.now);
            self.servers[server].pass(self.now);
        }
    }

    /// Gives up the calls in flight on a connection that was replaced.
    fn abandon(&mut self, runtime: RuntimeId, server: usize) {
        let calls = self.calls.values();
        let calls = calls.filter(|call| (call.runtime, call.server) == (runtime, server));
        for call in calls.map(|call| call.id).collect::<Vec<_>>() {
            self.handle_reply(self.now, call, Err(Failure::Abandoned));
        }
    }

    /// Whether a runtime can send claims to a server.
    pub(in crate::redis) fn is_connected(&self, runtime: RuntimeId, server: usize) -> bool {
        self.is_ready(server) && self.has_connection(runtime, server)
    }

    fn has_connection(&self, runtime: RuntimeId, server: usize) -> bool {
        let lane = self.lanes.get(&(runtime, server));
        lane.is_some_and(|lane| lane.is_connected)
    }

    /// Whether claims can be sent to a server: its clock is known, and so are the limits.
    fn is_ready(&self, server: usize) -> bool {
        self.servers[server].is_known() && self.knows_limits()
    }

    /// Whether claims wait for the thread, which has no connection to send them over.
    pub(in crate::redis) fn is_stuck(&self, number: usize) -> bool {
        let lane = self.lanes.get(&(THREAD, number));
        let waits = lane.is_some_and(|lane| !lane.is_connected && !lane.claims.is_empty());
        waits && self.servers[number].is_known() && !self.is_open(number)
    }

    /// The highest time that any server has shown to any process, microseconds.
    pub(in crate::redis) fn floor(&self, now: Time) -> u64 {
        self.highest.floor(now)
    }

    /// The server of a slot.
    pub(in crate::redis) fn server_at(&self, slot: u16) -> usize {
        self.slots.server_of(slot)
    }

    /// The servers that have any semaphores.
    pub(in crate::redis) fn servers(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|server| self.slots.is_used(*server))
    }

    // Time.

    /// When it has something to do.
    pub(in crate::redis) fn poll_timeout(&self) -> Option<Time> {
        let now = self.sweep.is_some() || self.is_to_leave();
        let now = now.then_some(Time::ZERO);
        let permit = self.due.first().map(|(at, _)| *at);
        let call = self.calls.values().next().map(|flight| flight.deadline);
        let limits = self.limits.gives_up_at(&self.settings);
        let servers = self.servers.iter().filter_map(Server::timer);
        let lanes = self.stalls().map(|(at, _)| at);
        let others = [now, permit, call, limits].into_iter().flatten();
        servers.chain(lanes).chain(others).min()
    }

    /// Does what is due. Ends come before sends.
    pub(in crate::redis) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        for _ in 0..MOST_DUE {
            match self.calls.first_key_value() {
                Some((&id, flight)) if flight.deadline <= now => {
                    self.handle_reply(now, id, Err(Failure::TimedOut));
                }
                _ => break,
            }
        }
        self.give_up_limits();
        self.go_on_sweeping();
        for _ in 0..MOST_DUE {
            match self.due.first() {
                Some((at, id)) if *at <= now => self.permit_due(*id),
                _ => break,
            }
        }
        for server in &mut self.servers {
            server.pass(now);
        }
        let stalled = self.stalls().filter(|(at, _)| *at <= now);
        for (_, (from, server)) in stalled.collect::<Vec<_>>() {
            self.hand_over(from, server);
            self.take_over(from, server);
        }
        if self.is_to_leave() {
            self.leave();
        }
    }

    /// The lanes in which claims or releases wait for a runtime's calls, and when the thread takes these over. The
    /// server may work although nothing polls the runtime's tasks. After a shutdown the thread takes over at once,
    /// because the process may be about to end, and its runtimes with it.
    fn stalls(&self) -> impl Iterator<Item = (Time, (RuntimeId, usize))> {
        let patience = match self.is_closed {
            true => Time::ZERO,
            false => self.settings.patience(),
        };
        let others = self
            .lanes
            .iter()
            .filter(|((from, server), _)| *from != THREAD && self.has_connection(THREAD, *server));
        others.filter_map(move |(at, lane)| Some((lane.stalls_since()? + patience, *at)))
    }

    /// Ends come first, then what is to be sent.
    fn permit_due(&mut self, id: PermitId) {
        self.unfile(id);
        self.end_due(id);
        self.each_of(id, Self::send_if_due);
        self.file(id);
    }

    /// Visits all permits, some at a time.
    fn go_on_sweeping(&mut self) {
        let Some(from) = self.sweep else {
            return;
        };
        let end = from + MOST_DUE;
        for slot in from..end {
            if let Some(id) = self.permits.get(slot).map(|permit| permit.id) {
                self.visit(id);
            }
        }
        self.sweep = (end < self.permits.capacity()).then_some(end);
    }

    /// What has become of a server, or of this process, concerns a permit.
    fn visit(&mut self, id: PermitId) {
        self.wait_elsewhere(id);
        if self.is_closed {
            self.end(id, Refusal::Closed);
            return self.release_soon(id);
        }
        self.limit_anew(id);
        self.refresh_soon(id);
        self.decide_if_open(id);
    }

    // Out.

    /// Whether nothing is left of any claim and, once it claims no more, of this process.
    pub(in crate::redis) fn is_idle(&self) -> bool {
        self.is_forgotten() && (!self.is_closed || self.stay == Stay::Gone)
    }

    /// True if the core has no claims, permits or releases left.
    pub(in crate::redis) fn is_forgotten(&self) -> bool {
        let is_forgotten = self.permits.is_empty() && self.waiters.is_empty();
        is_forgotten && self.due.is_empty() && self.keys.is_empty()
    }

    fn is_to_leave(&self) -> bool {
        self.is_closed && self.stay == Stay::Here && self.is_forgotten()
    }

    /// Others need not wait until this process counts no more. It says so once, if it can: a lease later it is so
    /// anyway.
    fn leave(&mut self) {
        let server = self.counting();
        let can_say = self.has_connection(THREAD, server) && !self.is_open(server);
        self.servers[server].announces |= can_say;
        self.stay = if can_say { Stay::Leaving } else { Stay::Gone };
    }

    /// What waited to be said to this server is not said.
    fn stay_is_over(&mut self, server: usize) {
        if server == self.counting() && self.stay == Stay::Leaving {
            self.stay = Stay::Gone;
        }
    }

    /// The server that counts processes.
    fn counting(&self) -> usize {
        self.slots.server_of(self.settings.slots_of_store[1])
    }

    /// What to tell callers.
    pub(in crate::redis) fn poll_event(&mut self) -> Option<(PermitId, Event)> {
        self.events.pop_front()
    }

    /// What to tell operators.
    pub(in crate::redis) fn poll_outage(&mut self) -> Option<(usize, Outage)> {
        self.outages.pop_front()
    }

    /// Returns a server that has not answered a call in time, so connections to it may be mute.
    pub(in crate::redis) fn poll_late_server(&mut self) -> Option<usize> {
        self.late_servers.pop_first()
    }

    /// What has happened to the limits that operators set since that was last asked.
    pub(in crate::redis) fn poll_limits(&mut self) -> Option<LimitsEvent> {
        self.limits.event.take()
    }

    /// Whether the limits that operators set are read: not if their server refuses to tell them.
    pub(in crate::redis) fn reads_limits(&self) -> bool {
        self.limits.are_read()
    }

    /// The limit of a semaphore that an operator has set, by its name.
    pub(in crate::redis) fn limit_of_name(&self, name: &str) -> Option<u32> {
        self.limits.of(name)
    }

    // What the parts share.

    fn lane(&mut self, runtime: RuntimeId, server: usize) -> &mut Lane {
        self.lanes.entry((runtime, server)).or_default()
    }

    fn permit(&mut self, id: PermitId) -> Option<&mut Permit> {
        let permit = self.permits.get_mut(id.slot);
        permit.filter(|permit| permit.id == id)
    }

    fn lease(&mut self, At(id, lease): At) -> Option<&mut Lease> {
        self.permit(id)?.leases.get_mut(lease)
    }

    /// Visits the leases of a permit, each while it is there: a visit may end the permit.
    fn each_of(&mut self, id: PermitId, mut visit: impl FnMut(&mut Self, At)) {
        let mut number = 0;
        while self
            .permit(id)
            .is_some_and(|permit| number < permit.leases.len())
        {
            visit(self, At(id, number));
            number += 1;
        }
    }

    fn levels_of(&self, At(id, lease): At) -> &[Own] {
        self.permits[id].levels_of(lease)
    }

    /// What follows of a claim is carried by the runtime that has brought the news, because no other one looks.
    fn carried_by(&mut self, runtime: RuntimeId, id: PermitId) {
        if let Some(permit) = self.permit(id) {
            permit.from = runtime;
        }
    }

    /// Files a permit at the least of its timers, unless it is filed before that.
    fn file(&mut self, id: PermitId) {
        let Some(permit) = self.permit(id) else {
            return;
        };
        let (old, next) = (permit.filed, permit.timer());
        if next.is_some_and(|next| old.is_none_or(|old| next < old)) {
            permit.filed = next;
            self.due.extend(next.map(|next| (next, id)));
            self.due.remove(&(old.unwrap_or(Time::MAX), id));
        }
    }

    fn unfile(&mut self, id: PermitId) {
        let filed = self.permits[id].filed.take();
        self.due.remove(&(filed.unwrap_or(Time::MAX), id));
    }

    /// Puts a lease where it waits to be sent, if it has work that is due.
    fn send_if_due(&mut self, at: At) {
        if self.permit(at.0).is_none() {
            return;
        }
        let (permit, lease) = (&self.permits[at.0], &self.permits[at]);
        let Some(queue) = lease.queue() else {
            return;
        };
        if lease.waits().is_some() || lease.next > self.now {
            return;
        }
        // After a shutdown the sweep releases a lost lease, so the lease does not come back.
        if self.is_closed && lease.is_absent() {
            return;
        }
        if matches!(lease.state, State::Wanted) && self.is_beyond_share(at.0) {
            return self.hold_back(at);
        }
        // The caller's task carries its claim. Of what comes later, as a return under a new id, it does not know.
        let is_claim = !lease.was_sent && !permit.is_decided();
        let from = if is_claim { permit.from } else { THREAD };
        self.push(at, queue, from);
    }

    fn push(&mut self, at: At, queue: Queue, from: RuntimeId) {
        let number = self.server_of(at);
        let lease = &mut self.permits[at];
        lease.waits_in = Some((queue, number));
        let end = lease.end().unwrap_or_default();
        let server = &mut self.servers[number];
        match queue {
            Queue::Refreshes => drop(server.refreshes.insert((end, at))),
            Queue::Polls => server.polls.push_back(at),
            Queue::Claims => {
                let from = self.sends(from, number);
                self.lane(from, number).claims.push_back(at);
            }
            Queue::Releases => {
                let is_urgent = self.is_urgent(at);
                self.servers[number].release(self.now, at, is_urgent);
            }
        }
    }

    /// The thread sends for a runtime that cannot.
    fn sends(&self, from: RuntimeId, server: usize) -> RuntimeId {
        match self.is_connected(from, server) {
            true => from,
            false => THREAD,
        }
    }

    /// The thread sends what waits in a lane that cannot.
    fn hand_over(&mut self, from: RuntimeId, server: usize) {
        if from != THREAD {
            let waiting = mem::take(&mut self.lane(from, server).claims);
            self.lane(THREAD, server).claims.extend(waiting);
        }
    }

    /// Lets the thread send the releases again that a runtime's calls have. These calls may still be answered.
    fn take_over(&mut self, from: RuntimeId, server: usize) {
        self.lane(from, server).may_stall = 0;
        let mut leases = BTreeSet::new();
        for flight in self.calls.values_mut() {
            let is_here = (flight.runtime, flight.server) == (from, server);
            if is_here && mem::take(&mut flight.may_stall) {
                leases.extend(flight.items.iter().flat_map(Items::leases));
            }
        }
        for at in leases {
            self.release_beside(at);
        }
    }

    /// True if a release is sent at once instead of with the next call. There are three reasons: other claims may be
    /// refused until it arrives (rule 19), a caller waits for a release that the thread sends, or the process may be
    /// about to end.
    fn is_urgent(&self, at: At) -> bool {
        let permit = &self.permits[at.0];
        let is_of_thread = permit.tells_release && permit.from == THREAD;
        let is_full = self.is_any_full(self.levels_of(at));
        let is_awaited = is_full && !self.is_busy(self.server_of(at));
        self.is_closed || is_of_thread || is_awaited
    }

    /// True if one of these semaphores counts as full.
    fn is_any_full(&self, levels: &[Own]) -> bool {
        let mut levels = levels.iter();
        levels.any(|level| self.keys[level.key].is_full(self.now))
    }

    /// True if a runtime has several calls in flight, so that its next call is soon sent and can include releases.
    fn is_busy(&self, server: usize) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|((from, to), lane)| {
            *from != THREAD && *to == server && lane.in_flight >= lane::FEW
        })
    }

    /// The lease at which a claim has arrived is to be acquired. What is decided at once waits nowhere, because nothing
    /// leaves while a server is in an outage.
    fn want(&mut self, at: At) {
        let lease = &mut self.permits[at];
        (lease.state, lease.next) = (State::Wanted, self.now);
        self.decide_if_open(at.0);
        self.send_if_due(at);
    }
}
