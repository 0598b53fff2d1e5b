//! The claims and permits of this process, and everything that is sent for them: one synchronous state machine.
//!
//! The core makes all decisions and does no I/O. It has no task, thread, lock, socket, clock or randomness: callers,
//! servers and time come in as arguments, and calls and events come out. So a test can run it through a million faults
//! in seconds. quinn-proto, rustls and str0m are built the same way.
//!
//! ```text
//! reply, end, releases, weight, outage, moving, limiting, budgets, build ─> core
//! core ─> key ─> permit;  debt ─> permit ─> lease ─> remote, call, queues
//!      ─> server ─> health;  connection ─> queues, call
//!      ─> slots ─> remote
//!      ─> timers, limits, pauses ─> id, time, swept ─> table, policy
//! ```
//!
//! An arrow means *uses*.
//!
//! | term | meaning |
//! |---|---|
//! | claim | a permit that is not granted yet |
//! | key | a semaphore. A *key of the store* belongs to no semaphore, such as the set of live processes |
//! | level | one limit of a claim, at one semaphore. Levels are sorted from narrow (one account) to wide (the fleet) |
//! | unit | a server stores a unit of a level for each 1 of its weight, or one for the reservation of a budget |
//! | poll, probe | the acquire that a waiter repeats as its heartbeat; an announcement to a server that fails |
//! | share | of a process: the units of a limit that it may hold while the server is unavailable, by its policy |
//! | strict | a permit that must not exist without its server |
//! | well | a server is well if no process can still treat it as unavailable |
//! | growth, root | a growth adds units to a permit, its root |
//! | thread, runtime | the keeper's background thread; a tokio runtime of callers |
//! | announcement | the thread's periodic call (`Presence`) that reports this process and reads the keys of the store |
//! | sweep | a visit of each permit and debt after a change |
//! | settled | a debt is settled once a release is answered after which no acquire of its units can run |
//!
//! | type | content |
//! |---|---|
//! | `PermitState` | the levels of a claim, and its leases from narrow to wide |
//! | `Lease` | a run of neighbouring levels that one script may name: acquired and refreshed together |
//! | `Debt` | units that a server may have although they were given up, until a release has freed them |
//! | `Server` | its clock, its health, and the work that waits to be sent to it |
//! | `ConnectionState` | a runtime's link to a server: the leases that wait to be sent over it, its calls in flight |
//! | `KeyState` | the units of a semaphore that count in this process's share, and the debts that are not settled |
//!
//! Each entry to the core, by a public method, is a *step*, which may visit many permits. A step only marks permits as
//! ended. At its end `give_up_ended` makes debts of their leases, so a step removes nothing that it still visits. The
//! docs of `lease` have a table of the states of a lease, and of the events that change them.
//!
//! Rules, and why each holds. Code that enforces a rule names it.
//!
//! 1. *A claim has one deadline*, which never moves: its longest wait plus two timeouts.
//! 2. *A stale command cannot grant*: each acquire carries a deadline in its server's time. The estimate of that clock
//!    is never ahead of the clock, so no acquire runs after its call's deadline by this process's clock.
//! 3. *An acquire that may have run is released*, until (a) a release is answered that was sent after the last acquire
//!    could run, or behind it on the same connection, (b) an acquire is refused while no other can run, or (c) the
//!    units have expired on the server. An acquire that a server refused to run, as in rule 14, needs no release. Units
//!    that are given up become a debt if a server may have them, and only debts are released. A debt is never acquired.
//! 4. *A process sees its own releases*: a call that acquires units of a key begins with the releases of the key's
//!    debts that are not settled, unless the same connection carries these releases before it.
//! 5. *Leases are acquired one after the other*, from narrow to wide, and the claim is granted when all are held. Until
//!    then each lease lasts only as long as a waiter counts as alive, and every heartbeat refreshes it. If a lease is
//!    lost while the claim waits, the claim gives its wider leases back and acquires the lost one again. So no claim
//!    holds a wide unit while it waits for a narrow one.
//! 6. *A lost lease comes back*: a lease that a refresh does not find is acquired again at once, but not before claims
//!    that wait in the queue. Its holder is notified when that acquire is refused, or at the last expiry that was
//!    reported to it, whichever is first. Only the holder of a strict permit is notified before the lease is acquired
//!    again. A lease of several units comes back under a new id, because the server may have lost only some of the
//!    units. The release of the old id is in the same call, so usually no other claim gets the units in between. In an
//!    outage a probe may carry the release alone. The lease comes back as a whole: if one of its levels was lost and
//!    has no room, its units of the other levels are free a moment before the holder is notified.
//! 7. *A call is over at its deadline*, whatever is reported later. A timeout is at most a third of a lease, so a lease
//!    that is granted or refreshed always ends in the future.
//! 8. *A message counts as a grant* if its token is above the last token in the answer to the last answered poll, and a
//!    lease that began with that poll has not expired. The answer to an earlier poll then decides nothing: a grant
//!    counts as a refresh, and after any other answer a refresh is due. If an acquire of a claim whose wait is over is
//!    in flight, only its answer counts: a pause may have refused the acquire, which freed the units. A message may
//!    arrive before the answer that its claim is queued. Then the claim polls right after that answer. A message never
//!    counts for a claim with several levels, or with replicas.
//! 9. *An id is in one acquire or refresh at a time*: while one is in flight, `Lease::schedule` changes nothing. A
//!    lease that gets a new id forgets the call of the old one, whose answer goes to the debt.
//! 10. *A permit has one timer*, and so has a debt: `timers` contains each at most once, at its earliest timer or
//!     before. If the timer moves to a later time, the entry stays and is corrected when it pops. So a permit that is
//!     released at once is scheduled only once.
//! 11. *A call is evidence for the instant at which it was sent*: a failure counts unless a call that was sent later
//!     has been answered. An answer ends all failures so far if its call was not sent before the first failed one. Only
//!     the thread's failures make an outage, because a caller's runtime may stall; a caller's failure makes a probe
//!     due. During an outage only probes are sent, one at a time, together with the waiting releases, and the policy
//!     decides each claim.
//! 12. *A claim counts in its process's share* from when it is sent, and its permit until it is given up, even while no
//!     server has it. A claim does not count while it waits in a queue, and its polls are always sent. Under a policy
//!     with shares, each claim that is not strict must fit into the share when it is sent and when it is granted. This
//!     applies from the first known failure until no process can still treat the server as unavailable. So a claim
//!     never takes another process's place.
//! 13. *A growth is itself a permit*, which ends with its root. Its ids have the number of its root, so a revocation of
//!     any lease ends the whole permit. Units that are taken away become a debt. So a change of weight meets no fault
//!     that a claim or a release cannot meet. Growths are merged, so a permit has at most 32 at a level. An id is
//!     always acquired with all units that it was made with. A lease with fewer units is therefore acquired under a new
//!     id, even if the old one was never sent.
//! 14. *A lease is where its slot is*: its server is looked up when a command is sent. A server that refuses a command
//!     because it does not have the slot has changed nothing. So the refused command is over, and its leases and debts
//!     are sent again.
//! 15. *A grant that a failover may forget does not count*: with replicas, each call that grants ends with a wait for
//!     them. If too few of them have its writes, the call counts as unanswered.
//! 16. *An error of one key affects no other key*: the leases or debts of the failed command are sent again, each in a
//!     separate command.
//! 17. *A caller's task sends its own claim or release*, and is never the first to send a release that another task
//!     waits for, because its future may never be polled again. Spawned tasks send everything else. The thread takes
//!     over from a runtime that stalls: claims of the runtime wait, or calls without acquires are in flight, and for a
//!     quarter of a timeout no call of that kind was sent or answered. Then the thread sends the waiting claims, and
//!     sends these releases again.
//! 18. *A lease is acquired under the limits in force*, each time. An id contains its limit. So if the limit has
//!     changed, the levels that are not held get other ids, and the call begins with the release of the old ones. When
//!     limits change, a waiting lease polls at once if it does not hold a level whose limit has changed. The server
//!     that counts processes also reports the limits. Nothing is claimed before it has reported them, unless it is
//!     failing, refuses connections or the report, or the slot of the limits has been moving for a timeout.
//! 19. *The release of a full key is sent at once*, because a client that has read the end of its response may send the
//!     next request to another process. A key counts as full for ten seconds after an answer that left no room for
//!     another such claim, even while this process has no lease of it. The first runtime that enters the core sends the
//!     release: usually the runtime that drops the permit, otherwise the thread. While a runtime has several calls in
//!     flight, the release joins the next call instead, so that a busy process sends few calls.
//! 20. *A claim waits for its own keys only*: a separate command names each key of the store. So if the slot of such a
//!     key is moving or stuck, nothing else is refused.
//! 21. *A claim that takes more than one call for a wider lease acquires its narrower leases again* before it is
//!     granted, under the same ids unless a limit has changed. One of their keys may have been paused in the meantime.
//!     Then the claim waits for that key, and gives the wider leases back. So once a pause is answered, a claim is
//!     granted only if its last calls are in flight already. The levels of one lease are checked together by its
//!     script.

mod budgets;
mod build;
mod call;
mod connection;
mod debt;
mod end;
mod health;
mod id;
mod key;
mod lease;
mod limiting;
mod limits;
mod moving;
mod outage;
mod pauses;
mod permit;
mod policy;
mod queues;
mod releases;
mod remote;
mod reply;
mod server;
mod slots;
mod swept;
mod table;
mod time;
mod timers;
mod weight;

pub use call::{Call, CallFailure};
pub use health::Outage;
pub use id::{CallId, PermitId, RuntimeId, THREAD};
pub use limits::LimitsEvent;
pub use permit::{Event, LevelClaim, LevelWait, Merge, Refusal};
pub use policy::OutagePolicy;
pub use server::{Change, SlotRanges};
pub use time::{CoreSettings, FOREVER, Time};

use crate::verbs::{Answer, LeaseId, LeaseName, LeaseUnits, Message};
use budgets::LocalBudgets;
use call::{Flight, Items, StoreKey};
use connection::ConnectionState;
use debt::Debt;
use end::{EndCause, EndedPermit};
use id::{DebtId, LeaseRef};
use key::KeyStates;
use lease::{Lease, LeaseEvent, LeaseState};
use limits::LimitsState;
use pauses::LocalPauses;
use permit::{ClaimedLevel, PermitState};
use policy::LiveProcesses;
use queues::SendQueue;
use server::{Highest, Server};
use slots::Slots;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    mem,
    sync::Arc,
};
use table::Table;
use timers::{TimerOwner, Timers};

/// The most overdue calls, timers and places of a sweep that one step handles, and the most refreshes and waiting
/// releases that a call takes. So no step blocks the others for long.
const MOST_DUE: usize = 512;

/// The membership of this process among the live ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Membership {
    #[default]
    Member,
    /// The process announces that it leaves.
    Leaving,
    Gone,
}

/// See the module docs.
#[derive(Debug, Default)]
pub struct Core {
    /// The time of the current step.
    now: Time,
    settings: CoreSettings,
    permits: Table<PermitState>,
    /// The permits that have ended in this step and still have their leases.
    ended: VecDeque<EndedPermit>,
    pauses: LocalPauses,
    budgets: LocalBudgets,
    /// The permits by the number that is in the names of their leases: messages name only that number.
    named: HashMap<u64, PermitId>,
    /// Ordered by id, and therefore by deadline.
    calls: BTreeMap<CallId, Flight>,
    debts: Table<Debt>,
    /// Debts for units that a call in flight names under their lease. The answer to the call concerns them too.
    owed_in: BTreeMap<CallId, Vec<(LeaseRef, DebtId)>>,
    servers: Vec<Server>,
    slots: Slots,
    /// For keys of the store whose slots are moving: the server that the next command for the key is sent to.
    store_redirects: BTreeMap<StoreKey, usize>,
    highest: Highest,
    connections: BTreeMap<(RuntimeId, usize), ConnectionState>,
    keys: KeyStates,
    timers: Timers,
    events: VecDeque<(PermitId, Event)>,
    /// The outages that have begun or ended, with their servers.
    outages: VecDeque<(usize, Outage)>,
    /// The servers that have not answered a call in time, until the driver takes them.
    late_servers: BTreeSet<usize>,
    live: LiveProcesses,
    limits: LimitsState,
    /// The first place of `permits` and `debts` that the current sweep has not visited. A sweep starts when a server
    /// may have lost leases, refuses connections, is unavailable or is back, when slots have moved or limits have
    /// changed, and at shutdown.
    sweep: Option<usize>,
    is_closed: bool,
    membership: Membership,
    last_call: u64,
}

impl Core {
    pub fn new(settings: CoreSettings) -> Self {
        let membership = if settings.claims {
            Membership::Member
        } else {
            Membership::Gone
        };
        Self {
            settings,
            servers: vec![Server::default()],
            membership,
            ..Self::default()
        }
    }

    // Callers.

    /// Makes a claim. The caller's own task must send a returned call. The call contains no other claim, and is not the
    /// first to contain a release that a task waits for. So a task that is not polled again delays no other.
    pub fn acquire(
        &mut self,
        now: Time,
        from: RuntimeId,
        levels: &[LevelClaim],
    ) -> (PermitId, Option<Call>) {
        self.now = now;
        let id = self.permits.next_id();
        let since = self.servers[self.slots.owner_of(levels[0].slot)].clock_at(now);
        let claimed = levels.iter().map(|level| {
            let lease = LeaseId {
                name: LeaseName::new(id.serial, 0),
                limit: level.limit,
                weight: level.weight,
                since,
                flow: level.flow.clone(),
                label: level.label.clone(),
            };
            let key = self.keys.number(&level.name);
            let units = match level.charge {
                Some(charge) => LeaseUnits::reserved(lease, charge),
                None => LeaseUnits::new(lease),
            };
            ClaimedLevel::new(key, units, level.wait)
        });
        let claimed = claimed.collect();
        let leases = permit::leases(levels);
        let mut permit = PermitState::new(id, (now, from), claimed, leases, &self.settings);
        permit.is_strict = levels.iter().any(|level| level.is_strict);
        self.named.insert(id.serial, id);
        self.claim(permit)
    }

    fn add(&mut self, permit: PermitState) {
        for level in &permit.levels {
            self.keys[level.key].users += 1;
        }
        self.permits.insert(permit);
    }

    /// Starts a claim or a growth. The caller's own task must send a returned call.
    fn claim(&mut self, permit: PermitState) -> (PermitId, Option<Call>) {
        let id = permit.id;
        self.add(permit);
        for at in self.lease_refs(id) {
            self.put_under_limits(at);
        }
        if self.is_closed {
            self.refuse(id, Refusal::Closed);
        } else if !self.refuse_if_above_limit(id) {
            self.start_acquire(LeaseRef(id, 0));
        }
        self.set_timer(id);
        self.give_up_ended();
        (id, self.call_alone(LeaseRef(id, 0)))
    }

    /// Starts the shutdown: the next sweep refuses all claims, and releases all permits, which are reported as lost.
    /// Then this process leaves.
    pub fn shutdown(&mut self) {
        (self.is_closed, self.sweep) = (true, Some(0));
        for server in &mut self.servers {
            server.releases_now |= !server.releases.is_empty();
        }
    }

    /// The permits, claims and debts that are left: the name of the narrowest semaphore, and the token, or 0 if no
    /// grant of these units is known.
    pub fn unreleased(&self) -> Vec<(Arc<str>, u64)> {
        let permits = self.permits.iter().map(|permit| &permit.levels);
        let debts = self.debts.iter().map(|debt| &debt.levels);
        let narrowest = permits.chain(debts).filter_map(|levels| levels.first());
        let unreleased =
            narrowest.map(|level| (Arc::clone(&self.keys[level.key].name), level.grant.0));
        unreleased.collect()
    }

    /// Gives up a permit or a claim, at any time. With `reports`, an event reports whether it was held.
    pub fn release(&mut self, now: Time, id: PermitId, reports: bool) {
        self.now = now;
        let Some(permit) = self.permits.get_mut(id) else {
            let event = reports.then_some((id, Event::Released(false)));
            return self.events.extend(event);
        };
        if permit.has_ended() {
            // The core has ended it. From now on its caller waits for the releases.
            permit.end(reports);
        } else {
            self.mark_ended(id, reports);
        }
        self.give_up_ended();
    }

    /// Notes that this process pauses a semaphore until this time, or ends its pause.
    pub fn note_pause(&mut self, now: Time, name: Arc<str>, until: Option<Time>) {
        self.now = now;
        match until {
            Some(until) => self.pauses.extend(now, name, until),
            None => self.pauses.remove(&name),
        }
    }

    /// True if a semaphore of this permit counts as full.
    pub fn is_full(&mut self, now: Time, id: PermitId) -> bool {
        self.now = now;
        self.permits.get(id).is_some() && self.is_any_full(&self.permits[id].levels)
    }

    // Servers.

    /// Takes the answers to a call, one for each command, or the failure of the call.
    pub fn handle_reply(&mut self, now: Time, id: CallId, reply: Result<Vec<Answer>, CallFailure>) {
        self.now = now;
        self.complete(id, reply);
        self.give_up_ended();
    }

    fn complete(&mut self, id: CallId, reply: Result<Vec<Answer>, CallFailure>) {
        let Some(flight) = self.calls.remove(&id) else {
            return;
        };
        let now = self.now;
        self.connection(flight.runtime, flight.server)
            .complete(now, &flight);
        match reply {
            // Rule 7.
            Ok(_) | Err(CallFailure::Abandoned) if now >= flight.deadline => {
                self.handle_no_answer(&flight, CallFailure::TimedOut);
            }
            Ok(answers) if self.is_confirmed(&flight, &answers) => {
                self.handle_answers(&flight, answers);
            }
            Ok(_) => self.handle_no_answer(&flight, CallFailure::Unconfirmed),
            Err(failure) => self.handle_no_answer(&flight, failure),
        }
        self.owed_in.remove(&id);
    }

    pub fn handle_message(&mut self, now: Time, message: Message) {
        self.now = now;
        match message {
            Message::Granted(name, token, held) => {
                if let Some(id) = self.named.get(&name.permit) {
                    self.handle_notification(*id, name, token, held);
                }
            }
            Message::Subscribed => {
                (0..self.servers.len()).for_each(|server| self.refresh_all_since(now, server));
            }
            Message::Revoked(number) => {
                if let Some(id) = self.named.get(&number) {
                    self.end(*id, EndCause::Revoked);
                }
            }
        }
        self.give_up_ended();
    }

    /// Takes a change of a connection, or of the servers of slots.
    pub fn handle_servers(&mut self, now: Time, change: Change) {
        self.now = now;
        if let Change::Connected(_, server)
        | Change::Replaced(_, server)
        | Change::Gone(_, server)
        | Change::NotConnected { server, .. } = change
        {
            self.add_servers(server);
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
                self.connection(runtime, server).is_connected = false;
                self.move_claims_to_thread(runtime, server);
                if runtime == THREAD {
                    self.end_leave(server);
                    // A lost connection is a failure of its server, unless the server has refused a connection.
                    if !self.servers[server].is_denied {
                        self.note_failure(server, now, true);
                    }
                }
            }
            Change::NotConnected {
                server,
                is_denied: true,
            } => self.note_denial(server),
            // A server that refused a connection before may be unreachable now: an outage, not a mistake.
            Change::NotConnected {
                server,
                is_denied: false,
            } => self.end_denial(server),
        }
        self.give_up_ended();
    }

    fn connected(&mut self, runtime: RuntimeId, server: usize) {
        self.connection(runtime, server).connect();
        // The thread cannot send its claims, and this runtime can.
        if self.is_stuck(server) {
            let waiting = self.connection(THREAD, server).queues.take_claims();
            self.connection(runtime, server).queues.add_claims(waiting);
        }
        if runtime == THREAD {
            // Messages may have been lost while the thread had no connection.
            self.refresh_all_since(self.now, server);
            self.servers[server].presence_at = Some(self.now);
            self.servers[server].handle_timers(self.now);
        }
    }

    /// Gives up the calls in flight on a connection that was replaced.
    fn abandon(&mut self, runtime: RuntimeId, server: usize) {
        let calls = self.calls.values();
        let calls = calls.filter(|call| (call.runtime, call.server) == (runtime, server));
        for call in calls.map(|call| call.id).collect::<Vec<_>>() {
            self.complete(call, Err(CallFailure::Abandoned));
        }
    }

    /// True if a runtime can send claims to a server: it is connected, the server's clock is known, and claims need not
    /// wait for the limits.
    pub fn can_send_claims(&self, runtime: RuntimeId, server: usize) -> bool {
        let is_ready = self.servers[server].is_clock_known() && self.need_not_wait_for_limits();
        is_ready && self.has_connection(runtime, server)
    }

    fn has_connection(&self, runtime: RuntimeId, server: usize) -> bool {
        let connection = self.connections.get(&(runtime, server));
        connection.is_some_and(|connection| connection.is_connected)
    }

    /// True if claims wait at the thread's lost connection to a server that is not in an outage and whose clock is
    /// known. Another runtime can send them.
    pub fn is_stuck(&self, number: usize) -> bool {
        let connection = self.connections.get(&(THREAD, number));
        let waits = connection.is_some_and(|connection| {
            !connection.is_connected && !connection.queues.is_empty(SendQueue::Claims)
        });
        waits && self.servers[number].is_clock_known() && !self.is_in_outage(number)
    }

    /// The least first token of a semaphore: the time that the furthest clock known to any process would show now, in
    /// microseconds.
    pub fn floor(&self, now: Time) -> u64 {
        self.highest.floor(now)
    }

    pub fn server_at(&self, slot: u16) -> usize {
        self.slots.owner_of(slot)
    }

    /// The servers that have slots, or that slots are moving to. The first server, if no map is known.
    pub fn servers(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|server| self.slots.is_used(*server))
    }

    // Time.

    /// The time at which [`handle_timeout`](Self::handle_timeout) has work.
    pub fn poll_timeout(&self) -> Option<Time> {
        let has_work_now = self.sweep.is_some() || self.should_leave();
        let now = has_work_now.then_some(Time::ZERO);
        let timer = self.timers.first().map(|(at, _)| at);
        let call = self.calls.values().next().map(|flight| flight.deadline);
        let limits = self.limits.gives_up_at(&self.settings);
        let servers = self.servers.iter().filter_map(Server::timer);
        let connections = self.stalls().map(|(at, _)| at);
        let others = [now, timer, call, limits].into_iter().flatten();
        servers.chain(connections).chain(others).min()
    }

    /// Does work that is due, at most `MOST_DUE` items of each kind. Overdue calls are completed first. The timer of a
    /// permit handles ends before it queues calls.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        for _ in 0..MOST_DUE {
            match self.calls.first_key_value() {
                Some((&id, flight)) if flight.deadline <= now => {
                    self.complete(id, Err(CallFailure::TimedOut));
                }
                _ => break,
            }
        }
        self.give_up_limits();
        self.go_on_sweeping();
        for _ in 0..MOST_DUE {
            match self.timers.first() {
                Some((at, TimerOwner::Permit(id))) if at <= now => self.handle_permit_timer(id),
                Some((at, TimerOwner::Debt(id))) if at <= now => self.handle_debt_timer(id),
                _ => break,
            }
        }
        for server in &mut self.servers {
            server.handle_timers(now);
        }
        let stalled = self.stalls().filter(|(at, _)| *at <= now);
        for (_, (from, server)) in stalled.collect::<Vec<_>>() {
            self.move_claims_to_thread(from, server);
            self.resend_releases_by_thread(from, server);
        }
        self.give_up_ended();
        if self.should_leave() {
            self.leave();
        }
    }

    /// The connections at which claims wait for a runtime, or releases for the answer to its call, and the time at
    /// which the thread takes these over (rule 17): the runtime's tasks may not be polled although the server works.
    /// After a shutdown the thread takes over at once, because the process may be about to end, and its runtimes with
    /// it.
    fn stalls(&self) -> impl Iterator<Item = (Time, (RuntimeId, usize))> {
        let patience = if self.is_closed {
            Time::ZERO
        } else {
            self.settings.patience()
        };
        let others = self
            .connections
            .iter()
            .filter(|((from, server), _)| *from != THREAD && self.has_connection(THREAD, *server));
        others
            .filter_map(move |(at, connection)| Some((connection.last_activity()? + patience, *at)))
    }

    /// Handles the due timers of a permit. Ends come before sends.
    fn handle_permit_timer(&mut self, id: PermitId) {
        self.unset_timer(id);
        self.end_due(id);
        for at in self.lease_refs(id) {
            self.enqueue_if_due(at);
        }
        self.set_timer(id);
    }

    /// Visits all permits and debts, [`MOST_DUE`] places at a time.
    fn go_on_sweeping(&mut self) {
        let Some(from) = self.sweep else {
            return;
        };
        let end = from + MOST_DUE;
        for index in from..end {
            if let Some(id) = self.permits.id_at(index) {
                self.visit(id);
            }
            if let Some(id) = self.debts.id_at(index) {
                self.visit_debt(id);
            }
        }
        let places = self.permits.places().max(self.debts.places());
        self.sweep = (end < places).then_some(end);
    }

    /// Applies a change of servers, limits or this process to a permit.
    fn visit(&mut self, id: PermitId) {
        self.requeue_leases_if_moved(id);
        if self.is_closed {
            return self.end(id, EndCause::Shutdown);
        }
        self.apply_limits(id);
        self.refresh_soon(id);
        self.decide_if_unavailable(id);
    }

    /// Applies a change of servers or of this process to a debt.
    fn visit_debt(&mut self, id: DebtId) {
        self.requeue_debt_if_moved(id);
        if self.is_closed {
            self.release_soon(id);
        }
    }

    // Out.

    /// True if the core has no claims, permits or releases left and, after a shutdown, this process has left.
    pub fn is_idle(&self) -> bool {
        self.is_forgotten() && (!self.is_closed || self.membership == Membership::Gone)
    }

    /// True if the core has no claims, permits or releases left.
    pub fn is_forgotten(&self) -> bool {
        let is_forgotten = self.permits.is_empty() && self.debts.is_empty();
        is_forgotten && self.named.is_empty() && self.timers.is_empty() && self.keys.is_empty()
    }

    /// True if this process leaves or has left. It then no longer reads the limits.
    fn has_left(&self) -> bool {
        self.membership != Membership::Member
    }

    fn should_leave(&self) -> bool {
        self.is_closed && !self.has_left() && self.is_forgotten()
    }

    /// Announces that this process leaves, so that others need not wait until it no longer counts. The announcement is
    /// sent at most once: after a lease this process no longer counts anyway.
    fn leave(&mut self) {
        let server = self.counting_server();
        let can_announce = self.has_connection(THREAD, server) && !self.is_in_outage(server);
        self.servers[server].announces |= can_announce;
        self.membership = if can_announce {
            Membership::Leaving
        } else {
            Membership::Gone
        };
    }

    /// Gives up the announcement that this process leaves, because the thread's connection for it is gone.
    fn end_leave(&mut self, server: usize) {
        if server == self.counting_server() && self.membership == Membership::Leaving {
            self.membership = Membership::Gone;
        }
    }

    /// The server that counts processes.
    fn counting_server(&self) -> usize {
        let [_clock, processes] = self.settings.slots_of_store;
        self.slots.owner_of(processes)
    }

    /// The next event for a caller.
    pub fn poll_event(&mut self) -> Option<(PermitId, Event)> {
        self.events.pop_front()
    }

    /// The next outage that begins or ends, for operators.
    pub fn poll_outage(&mut self) -> Option<(usize, Outage)> {
        self.outages.pop_front()
    }

    /// Returns a server that has not answered a call in time. Connections to it may be mute.
    pub fn poll_late_server(&mut self) -> Option<usize> {
        self.late_servers.pop_first()
    }

    /// The last change to the reported limits that was not polled yet.
    pub fn poll_limits(&mut self) -> Option<LimitsEvent> {
        self.limits.event.take()
    }

    /// False once the server of the limits has refused to report them, or their slot is moving. True before the first
    /// report.
    pub fn reads_limits(&self) -> bool {
        self.limits.are_readable()
    }

    /// The limit that an operator has set for the semaphore of this name.
    pub fn limit_of_name(&self, name: &str) -> Option<u32> {
        self.limits.limit_for(name)
    }

    // Shared by the other modules of the core.

    fn connection(&mut self, runtime: RuntimeId, server: usize) -> &mut ConnectionState {
        self.connections.entry((runtime, server)).or_default()
    }

    /// Finds a lease. `None` if its permit has ended.
    fn lease(&mut self, LeaseRef(id, lease): LeaseRef) -> Option<&mut Lease> {
        let permit = self
            .permits
            .get_mut(id)
            .filter(|permit| !permit.has_ended());
        permit?.leases.get_mut(lease)
    }

    /// The leases of a permit. They stay until this step is over, even if it ends the permit.
    fn lease_refs(&self, id: PermitId) -> impl Iterator<Item = LeaseRef> + use<> {
        let count = self.permits[id].leases.len();
        (0..count).map(move |lease| LeaseRef(id, lease))
    }

    fn levels_of(&self, LeaseRef(id, lease): LeaseRef) -> &[ClaimedLevel] {
        self.permits[id].levels_of(lease)
    }

    /// Moves a claim to the runtime that received its answer. That runtime sends the first acquires of the claim's next
    /// leases.
    fn move_to_runtime(&mut self, runtime: RuntimeId, id: PermitId) {
        if let Some(permit) = self.permits.get_mut(id) {
            permit.from = runtime;
        }
    }

    /// Schedules a permit at its earliest timer, unless it is scheduled before that (rule 10).
    fn set_timer(&mut self, id: PermitId) {
        let Some(permit) = self.permits.get_mut(id) else {
            return;
        };
        if let Some(next) = permit.timer() {
            self.timers
                .set(TimerOwner::Permit(id), &mut permit.scheduled, next);
        }
    }

    fn unset_timer(&mut self, id: PermitId) {
        let scheduled = &mut self.permits[id].scheduled;
        self.timers.clear(TimerOwner::Permit(id), scheduled);
    }

    /// Queues a lease if its next call is due. A claim beyond its share is held back or refused instead (rule 12).
    /// After a shutdown a missing lease is not queued.
    fn enqueue_if_due(&mut self, at: LeaseRef) {
        if self.lease(at).is_none() {
            return;
        }
        let (permit, lease) = (&self.permits[at.0], &self.permits[at]);
        let Some(queue) = lease.due_queue(self.now) else {
            return;
        };
        // After a shutdown the sweep releases a missing lease, so the lease does not come back.
        if self.is_closed && lease.is_missing() {
            return;
        }
        if matches!(lease.state, LeaseState::Wanted) && self.is_beyond_share(at.0) {
            return self.hold_back(at);
        }
        // A runtime sends the first acquire of each id of its claim. All others are the thread's.
        let is_claim = !lease.remote.was_sent() && permit.is_claim();
        let from = if is_claim { permit.from } else { THREAD };
        self.enqueue(at, queue, from);
    }

    fn enqueue(&mut self, at: LeaseRef, queue: SendQueue, from: RuntimeId) {
        let server = self.target_of(at);
        let lease = &mut self.permits[at];
        lease.enqueue(queue, server);
        let expiry = lease.expiry().unwrap_or_default();
        let from = if queue == SendQueue::Claims {
            self.sender_for(from, server)
        } else {
            THREAD
        };
        let queues = &mut self.connection(from, server).queues;
        queues.push(queue, at, expiry);
        if let Some(claims) = queues.begin_cleanup() {
            self.clean_up(from, server, claims);
        }
    }

    /// Drops the claims that no longer wait at a connection.
    fn clean_up(&mut self, from: RuntimeId, server: usize, mut claims: VecDeque<LeaseRef>) {
        claims.retain(|at| {
            let lease = self.lease(*at);
            lease.is_some_and(|lease| lease.waits_in(SendQueue::Claims, server))
        });
        self.connection(from, server).queues.end_cleanup(claims);
    }

    /// The runtime that sends a claim: this one, or the thread if this one cannot.
    fn sender_for(&self, from: RuntimeId, server: usize) -> RuntimeId {
        if self.can_send_claims(from, server) {
            from
        } else {
            THREAD
        }
    }

    /// Hands the claims that wait at a runtime's connection to the thread.
    fn move_claims_to_thread(&mut self, from: RuntimeId, server: usize) {
        if from != THREAD {
            let waiting = self.connection(from, server).queues.take_claims();
            self.connection(THREAD, server).queues.add_claims(waiting);
        }
    }

    /// Lets the thread send the releases of a runtime's stalled calls again. These calls may still be answered.
    fn resend_releases_by_thread(&mut self, from: RuntimeId, server: usize) {
        self.connection(from, server).may_stall = 0;
        let mut debts = BTreeSet::new();
        for flight in self.calls.values_mut() {
            let is_here = (flight.runtime, flight.server) == (from, server);
            if is_here && mem::take(&mut flight.may_stall) {
                debts.extend(flight.items.iter().flat_map(Items::debts));
            }
        }
        for debt in debts {
            self.release_beside(debt);
        }
    }

    /// True if one of these semaphores counts as full.
    fn is_any_full(&self, levels: &[ClaimedLevel]) -> bool {
        let mut levels = levels.iter();
        levels.any(|level| self.keys[level.key].is_full(self.now))
    }

    /// True if a runtime has several calls in flight, so that its next call leaves soon and can include releases (rule
    /// 19).
    fn is_busy(&self, server: usize) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|((from, to), connection)| {
            *from != THREAD && *to == server && connection.in_flight >= connection::FEW_CALLS
        })
    }

    /// Starts to acquire the next lease of a claim. In an outage the claim is decided at once and not queued.
    fn start_acquire(&mut self, at: LeaseRef) {
        let lease = &mut self.permits[at];
        lease.on(LeaseEvent::Turn);
        lease.schedule(self.now);
        self.decide_if_unavailable(at.0);
        self.enqueue_if_due(at);
    }
}

#[cfg(test)]
mod tests;
