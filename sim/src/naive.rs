//! A naive core: one level, one call for what is due, `Refuse`. With [bugs](Bug), or without.

use crate::bug::Bug;
use crate::subject::{
    Acquired, Answer, Call, CallId, Claim, Command, Event, Failure, GENERATION, Id, Key, Message,
    PermitId, Position, Refusal, Runtime, Server, Servers, Settings, Subject, Time, Wanted,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The pause after a failure.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Wanted,
    Queued,
    Held,
    Released,
}

#[derive(Debug)]
struct Permit {
    id: Id,
    claim: Claim,
    asked: Time,
    state: State,
    /// When its next call is due.
    next: Time,
    /// The call that acquires or refreshes it, and until when that may run.
    call: Option<(Kind, Time)>,
    is_releasing: bool,
    was_sent: bool,
    /// Until when acquires without an answer may run.
    may_run: Time,
    /// When the last poll with an answer was sent, and what it has said.
    polled: Time,
    arrival: u64,
    last_token: u64,
    /// The end of its lease.
    end: Time,
}

impl Permit {
    /// Until when an acquire of it may run, as far as is known.
    fn could_run(&self) -> Time {
        match self.call {
            Some((Kind::Acquire, end)) => end.max(self.may_run),
            _ => self.may_run,
        }
    }
}

/// A call in flight.
#[derive(Debug)]
struct Sent {
    server: Server,
    sent: Time,
    deadline: Time,
    kind: Kind,
    permits: Vec<PermitId>,
    /// Of a release: the permits that no acquire could bring back any more.
    settled: Vec<PermitId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Release,
    Refresh,
    Acquire,
    Clock,
}

/// What is known of a server.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    is_connected: bool,
    /// The server's clock, microseconds, at a time of ours.
    clock: Option<(u64, Time)>,
    reads_clock: bool,
}

impl Known {
    fn micros(&self, now: Time) -> u64 {
        self.clock.map_or(0, |(micros, at)| {
            micros + now.saturating_sub(at).as_micros() as u64
        })
    }

    fn observe(&mut self, server_ms: u64, now: Time) {
        self.clock = Some((server_ms * 1_000, now));
    }
}

/// The core.
#[derive(Debug)]
pub struct Naive {
    settings: Settings,
    bugs: Vec<Bug>,
    permits: BTreeMap<PermitId, Permit>,
    calls: BTreeMap<CallId, Sent>,
    servers: Vec<Known>,
    events: VecDeque<Event>,
    last_permit: u64,
    last_call: u64,
}

impl Naive {
    /// A core with bugs.
    pub fn new(settings: Settings, bugs: &[Bug]) -> Self {
        Self {
            servers: vec![Known::default(); settings.servers],
            settings,
            bugs: bugs.to_vec(),
            permits: BTreeMap::new(),
            calls: BTreeMap::new(),
            events: VecDeque::new(),
            last_permit: 0,
            last_call: 0,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// How long before the end at the server a lease counts as over here.
    fn margin(&self) -> Duration {
        self.settings.lease / 20
    }

    /// When a claim is refused if the server does not answer.
    fn budget(&self, permit: &Permit) -> Time {
        let time = permit.claim.longest_wait() + self.settings.timeout * 2;
        match self.has(Bug::NoBudget) {
            true => Time::MAX,
            false => permit.asked + time,
        }
    }

    /// The kind of a permit's next call, if it may have one.
    fn kind(&self, permit: &Permit) -> Option<Kind> {
        let known = &self.servers[self.settings.server_of(permit.claim.key)];
        let is_free = permit.call.is_none() || self.has(Bug::SendsTwice);
        let may_send = known.is_connected || self.has(Bug::StaysDue);
        match permit.state {
            _ if !may_send => None,
            State::Wanted | State::Queued if is_free && known.clock.is_some() => {
                Some(Kind::Acquire)
            }
            State::Held if permit.call.is_none() => Some(Kind::Refresh),
            State::Released if !permit.is_releasing && known.clock.is_some() => Some(Kind::Release),
            _ => None,
        }
    }

    fn timer(&self, permit: &Permit) -> Option<Time> {
        let next = self.kind(permit).map(|_| permit.next);
        let end = match permit.state {
            State::Wanted | State::Queued => Some(self.budget(permit)),
            State::Held if !self.has(Bug::LostAtAnswer) => Some(permit.end),
            State::Held | State::Released => None,
        };
        [next, end].into_iter().flatten().min()
    }

    /// Refuses a claim. What its acquires may have left is released.
    fn refuse(&mut self, now: Time, id: PermitId, why: Refusal) {
        let told = match why {
            Refusal::Unavailable if self.has(Bug::SaysFull) => Refusal::Full,
            why => why,
        };
        self.events.push_back(Event::Refused(id, told));
        let is_left = self
            .permits
            .get(&id)
            .is_some_and(|permit| permit.could_run() > now);
        if self.has(Bug::PollsRefused) {
            return;
        }
        if why == Refusal::Unavailable || is_left {
            self.let_go(now, id);
        } else {
            self.permits.remove(&id);
        }
    }

    /// Releases a permit, if the server can know it.
    fn let_go(&mut self, now: Time, id: PermitId) {
        let (forgets, leaves) = (
            self.has(Bug::ForgetsUnanswered),
            self.has(Bug::LeavesWaiter),
        );
        let pause = RETRY * u32::from(self.has(Bug::ReleasesLate));
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        let is_unanswered = permit.state == State::Wanted;
        let is_forgotten = forgets && is_unanswered || leaves && permit.state == State::Queued;
        if !permit.was_sent || is_forgotten {
            self.permits.remove(&id);
            return;
        }
        (permit.state, permit.next) = (State::Released, now + pause);
    }

    fn lose(&mut self, now: Time, id: PermitId) {
        self.events.push_back(Event::Lost(id));
        self.let_go(now, id);
    }

    /// A call has no answer: it failed, or its time is over.
    fn unanswered(&mut self, now: Time, sent: Sent, was_sent: bool) {
        if sent.kind == Kind::Clock {
            self.servers[sent.server].reads_clock = false;
        }
        for id in sent.permits {
            self.retry(now, id, &sent.kind, was_sent.then_some(sent.deadline));
        }
    }

    fn retry(&mut self, now: Time, id: PermitId, kind: &Kind, may_run: Option<Time>) {
        let (once, renews) = (self.has(Bug::ReleasesOnce), self.has(Bug::RetriesWithNewId));
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        if *kind == Kind::Release {
            permit.is_releasing = false;
            if once {
                self.permits.remove(&id);
                return;
            }
        } else {
            permit.call = None;
        }
        if let (Kind::Acquire, Some(end)) = (kind, may_run) {
            permit.may_run = permit.may_run.max(end);
            if renews && permit.state == State::Wanted {
                permit.id.serial += GENERATION;
            }
        }
        permit.next = now + RETRY;
    }

    fn command(&self, now: Time, server: Server, kind: Kind, due: &[PermitId]) -> Command {
        let floor = self.servers[server].micros(now);
        let permits = || due.iter().map(|id| &self.permits[id]);
        let ids = || by_key(permits().map(|permit| (permit.claim.key, permit.id)));
        let wanted = || permits().map(|permit| (permit.claim.key, self.wanted(now, permit)));
        match kind {
            Kind::Clock => Command::Clock { highest: floor },
            Kind::Release => Command::Release { floor, of: ids() },
            Kind::Refresh => Command::Refresh { of: ids() },
            Kind::Acquire => Command::Acquire {
                runs_until: match self.has(Bug::NoDeadline) {
                    true => 1 << 52,
                    false => (floor + self.settings.timeout.as_micros() as u64) / 1_000,
                },
                floor,
                of: by_key(wanted()),
            },
        }
    }

    fn wanted(&self, now: Time, permit: &Permit) -> Wanted {
        let wait = permit
            .claim
            .wait
            .filter(|wait| now < permit.asked + wait.time);
        Wanted {
            id: permit.id,
            position: wait.map(|wait| Position {
                wait,
                alive: self.settings.alive(),
                arrival: permit.arrival,
            }),
            was_sent: permit.was_sent,
        }
    }

    /// Makes the call for what is due.
    fn call(&mut self, now: Time, server: Server, kind: Kind, permits: Vec<PermitId>) -> Call {
        self.last_call += 1;
        let (id, deadline) = (CallId(self.last_call), now + self.settings.timeout);
        let drops = self.has(Bug::DropsLast) && permits.len() > 2 && kind == Kind::Acquire;
        if self.has(Bug::RejoinsQueue) && kind == Kind::Acquire {
            self.rejoin(&permits);
        }
        let named = &permits[..permits.len() - usize::from(drops)];
        let commands = vec![self.command(now, server, kind, named)];
        let settled = self.note_sent(now, kind, deadline, &permits);
        self.servers[server].reads_clock |= kind == Kind::Clock;
        let sent = Sent {
            server,
            sent: now,
            deadline,
            kind,
            permits,
            settled,
        };
        self.calls.insert(id, sent);
        Call {
            id,
            runtime: 0,
            server,
            commands,
            deadline,
        }
    }

    /// Notes that these are in a call. Returns those that no acquire can bring back after it.
    fn note_sent(
        &mut self,
        now: Time,
        kind: Kind,
        deadline: Time,
        permits: &[PermitId],
    ) -> Vec<PermitId> {
        let mut settled = permits.to_vec();
        settled.retain(|id| self.permits[id].could_run() <= now);
        for id in permits {
            let Some(permit) = self.permits.get_mut(id) else {
                continue;
            };
            if kind == Kind::Release {
                permit.is_releasing = true;
            } else {
                permit.call = Some((kind, deadline));
                (permit.was_sent, permit.next) = (true, now + RETRY);
            }
        }
        settled
    }

    fn rejoin(&mut self, permits: &[PermitId]) {
        let own = self
            .permits
            .iter_mut()
            .filter(|(id, _)| permits.contains(id));
        for (_, permit) in own.filter(|(_, permit)| permit.state == State::Queued) {
            permit.id.serial += GENERATION;
            permit.arrival = 0;
        }
    }

    fn answered(&mut self, now: Time, sent: Sent, answer: Answer) {
        match answer {
            Answer::Error(_) => self.unanswered(now, sent, false),
            Answer::Late(server_ms) => {
                self.servers[sent.server].observe(server_ms, now);
                for id in &sent.permits {
                    self.retry(now, *id, &sent.kind, None);
                }
            }
            Answer::Clock(server_ms, _) => {
                self.servers[sent.server].observe(server_ms, now);
                self.servers[sent.server].reads_clock = false;
            }
            Answer::Acquired(server_ms, each) => {
                self.servers[sent.server].observe(server_ms, now);
                for (id, acquired) in sent.permits.iter().zip(each) {
                    self.acquired(now, *id, sent.sent, acquired);
                }
            }
            Answer::Held(each) => {
                for (id, is_held) in sent.permits.iter().zip(each) {
                    self.refreshed(now, *id, sent.sent, is_held);
                }
            }
            Answer::Released => self.released(now, &sent),
        }
    }

    fn acquired(&mut self, now: Time, id: PermitId, sent: Time, acquired: Acquired) {
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        permit.call = None;
        match (permit.state, acquired) {
            (State::Released, Acquired::Full | Acquired::QueueFull) if permit.may_run <= now => {
                self.permits.remove(&id);
            }
            (State::Released, _) => permit.next = permit.next.min(now),
            (State::Held, _) => {}
            (_, Acquired::Granted { token }) => self.granted(now, id, sent, token),
            (_, Acquired::Full) if permit.claim.wait.is_some() => {
                self.refuse(now, id, Refusal::TimedOut);
            }
            (_, Acquired::Full) => self.refuse(now, id, Refusal::Full),
            (_, Acquired::QueueFull) => self.refuse(now, id, Refusal::QueueFull),
            (
                _,
                Acquired::Queued {
                    arrival,
                    recheck,
                    last_token,
                },
            ) => {
                (permit.state, permit.polled) = (State::Queued, sent);
                (permit.arrival, permit.last_token) = (arrival, last_token);
                let recheck = recheck.map(|after| after + Duration::from_millis(1));
                let pause = self
                    .settings
                    .heartbeat()
                    .min(recheck.unwrap_or(Duration::MAX));
                let over = permit.asked + permit.claim.longest_wait();
                permit.next = (now + pause).min(over.max(now));
            }
        }
    }

    /// The end of a lease that was granted or refreshed by a call.
    fn end(&self, now: Time, sent: Time) -> Time {
        let from = if self.has(Bug::CountsFromAnswer) {
            now
        } else {
            sent
        };
        from + self.settings.lease - self.margin()
    }

    fn granted(&mut self, now: Time, id: PermitId, sent: Time, token: u64) {
        let (end, refresh) = (self.end(now, sent), sent + self.settings.lease / 3);
        self.hold(now, id, token, end, refresh);
    }

    fn hold(&mut self, now: Time, id: PermitId, token: u64, end: Time, refresh: Time) {
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        if end <= now {
            permit.next = now;
            return;
        }
        (permit.state, permit.end, permit.next) = (State::Held, end, refresh);
        self.events.push_back(Event::Granted(id, token));
    }

    fn refreshed(&mut self, now: Time, id: PermitId, sent: Time, is_held: bool) {
        let goes_on = is_held || self.has(Bug::IgnoresLoss);
        let (end, refresh) = (self.end(now, sent), sent + self.settings.lease / 3);
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        permit.call = None;
        match permit.state {
            State::Held if goes_on => (permit.end, permit.next) = (end, refresh),
            State::Held => self.lose(now, id),
            _ => {}
        }
    }

    fn released(&mut self, now: Time, sent: &Sent) {
        for id in &sent.permits {
            let Some(permit) = self.permits.get_mut(id) else {
                continue;
            };
            permit.is_releasing = false;
            permit.next = permit.could_run().max(now);
            if sent.settled.contains(id) || self.has(Bug::ReleasesTooEarly) {
                self.permits.remove(id);
            }
        }
    }

    /// What is due at a server: of a kind, in this order.
    fn due(&self, now: Time, server: Server) -> Option<(Kind, Vec<PermitId>)> {
        let known = self.servers[server];
        if !known.is_connected {
            return None;
        }
        if known.clock.is_none() && !known.reads_clock {
            return Some((Kind::Clock, Vec::new()));
        }
        [Kind::Release, Kind::Refresh, Kind::Acquire]
            .into_iter()
            .find_map(|kind| {
                let due = self.permits.iter().filter(|(_, permit)| {
                    let is_here = self.settings.server_of(permit.claim.key) == server;
                    is_here && permit.next <= now && self.kind(permit) == Some(kind)
                });
                let mut due: Vec<_> = due.map(|(id, _)| *id).take(64).collect();
                // As the command has them, and so its answer.
                due.sort_by_key(|id| (self.permits[id].claim.key, *id));
                (!due.is_empty()).then_some((kind, due))
            })
    }
}

impl Subject for Naive {
    fn acquire(&mut self, now: Time, _: Runtime, claim: Claim) -> PermitId {
        self.last_permit += 1;
        let serial = self.last_permit;
        let Claim { limit, weight, .. } = claim;
        let permit = Permit {
            id: Id {
                serial,
                limit,
                weight,
            },
            claim,
            asked: now,
            state: State::Wanted,
            next: now,
            call: None,
            is_releasing: false,
            was_sent: false,
            may_run: Time::ZERO,
            polled: Time::ZERO,
            arrival: 0,
            last_token: 0,
            end: Time::MAX,
        };
        self.permits.insert(PermitId(serial), permit);
        PermitId(serial)
    }

    fn release(&mut self, now: Time, id: PermitId) {
        let Some(permit) = self.permits.get(&id) else {
            return;
        };
        let is_due = permit.state == State::Held && permit.next <= now + self.settings.lease / 6;
        if self.has(Bug::RefreshesReleased) && is_due && permit.call.is_none() {
            // The timer of the refresh goes on, and the release comes after it.
            return;
        }
        if permit.state != State::Released {
            self.let_go(now, id);
        }
    }

    fn handle_reply(&mut self, now: Time, call: CallId, reply: Result<Vec<Answer>, Failure>) {
        let Some(sent) = self.calls.remove(&call) else {
            return;
        };
        match reply {
            Ok(answers) => {
                if let Some(answer) = answers.into_iter().next() {
                    self.answered(now, sent, answer);
                }
            }
            Err(failure) => self.unanswered(now, sent, failure != Failure::NotConnected),
        }
    }

    fn handle_message(&mut self, now: Time, message: Message) {
        let id = PermitId(message.serial % GENERATION);
        let (stale, trusts) = (
            self.has(Bug::BelievesStaleMessage),
            self.has(Bug::TrustsProvisional),
        );
        let alive = self.settings.alive();
        let margin = self.margin().min(alive / 5);
        let Some(permit) = self.permits.get_mut(&id) else {
            return;
        };
        if permit.state != State::Queued {
            return;
        }
        let end = match trusts {
            true => now + self.settings.lease,
            false if stale => now + alive,
            false => permit.polled + alive - margin,
        };
        permit.next = now;
        if message.token > permit.last_token || stale && message.token > 0 {
            let refresh = if trusts {
                now + self.settings.lease / 3
            } else {
                now
            };
            self.hold(now, id, message.token, end, refresh);
        }
    }

    fn handle_servers(&mut self, _: Time, change: Servers) {
        match change {
            Servers::Connected(0, server) => {
                self.servers[server].is_connected = true;
                self.servers[server].reads_clock = false;
            }
            Servers::Gone(0, server) => self.servers[server].is_connected = false,
            Servers::Connected(..) | Servers::Gone(..) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timers = self
            .permits
            .values()
            .filter_map(|permit| self.timer(permit));
        let deadlines = self.calls.values().map(|sent| sent.deadline);
        timers.chain(deadlines).min()
    }

    fn handle_timeout(&mut self, now: Time) {
        let over = self.calls.iter().filter(|(_, sent)| sent.deadline <= now);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(sent) = self.calls.remove(&id) {
                self.unanswered(now, sent, true);
            }
        }
        let late = self.has(Bug::LostAtAnswer);
        let ids: Vec<_> = self.permits.keys().copied().collect();
        for id in ids {
            let permit = &self.permits[&id];
            match permit.state {
                State::Held if permit.end <= now && !late => self.lose(now, id),
                State::Wanted | State::Queued if self.budget(permit) <= now => {
                    self.refuse(now, id, Refusal::Unavailable);
                }
                _ => {}
            }
        }
    }

    fn poll_call(&mut self, now: Time) -> Option<Call> {
        let mut servers = 0..self.servers.len();
        let (server, (kind, due)) =
            servers.find_map(|server| Some((server, self.due(now, server)?)))?;
        Some(self.call(now, server, kind, due))
    }

    fn is_idle(&self) -> bool {
        self.permits.is_empty()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Groups by key, in the order of keys.
fn by_key<T>(items: impl Iterator<Item = (Key, T)>) -> Vec<(Key, Vec<T>)> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (key, item) in items {
        groups.entry(key).or_default().push(item);
    }
    groups.into_iter().collect()
}
