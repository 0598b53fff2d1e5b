//! A state of a walk: the server, the oracle and the clients.

use super::{
    clients::{Client, Kind, Phase, Request},
    oracle::{Oracle, Reserved, stored},
    walk::{Scenario, Step},
};
use crate::{
    lua::Runner,
    scripts::Verb,
    stand_in::{Reply, StandIn, Value},
    time::{ALIVE, LEASE, NOW_MS, TICK},
    unit::base36,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// The window of the budget, in ms.
const WINDOW: i64 = 4 * TICK;

/// The limit of the budget.
pub(super) const LIMIT: i64 = 3;

/// How long a grant lasts that is not confirmed, in ms.
const PROVISIONAL: i64 = 2 * TICK;

/// The length of a pause, in ms.
const PAUSE: i64 = 2 * TICK;

/// After this number of ticks everything has come back.
const HORIZON: i64 = 40;

/// The keys of a semaphore, and of the budget.
const SEMAPHORE: [&str; 4] = ["s:{b}:held", "s:{b}:queue", "s:{b}:alive", "s:{b}:token"];
const BUDGET: [&str; 4] = [
    "s:{b}400:held",
    "s:{b}400:queue",
    "s:{b}400:alive",
    "s:{b}:budget",
];
const UNUSED: [&str; 4] = [
    "s:{b}0:held",
    "s:{b}0:queue",
    "s:{b}0:alive",
    "s:{b}:budget",
];

/// A claim in the queue of the budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waiter {
    /// In microseconds.
    arrival: i64,
    client: usize,
    alive_until: i64,
    /// When it polls next: at once if it was notified.
    polls_at: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    server: StandIn,
    oracle: Oracle,
    clients: Vec<Client>,
    queue: Vec<Waiter>,
    /// The end of the last pause.
    paused_until: i64,
    /// The number of pauses so far.
    pauses: u8,
    /// The number of faults so far.
    faults: u8,
    /// The ends of the units of the semaphore, by client.
    units: BTreeMap<usize, i64>,
}

type Checked = Result<(), String>;

impl World {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            server: StandIn::at(NOW_MS * 1_000),
            oracle: Oracle::new(WINDOW, NOW_MS),
            clients: vec![Client::new(); clients],
            queue: Vec::new(),
            paused_until: 0,
            pauses: 0,
            faults: 0,
            units: BTreeMap::new(),
        }
    }

    fn now(&self) -> i64 {
        self.server.now / 1_000
    }

    /// The steps that are possible now.
    pub(super) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        let may_fail = self.faults < scenario.faults;
        for (at, client) in self.clients.iter().enumerate() {
            let claim = scenario.claims[at];
            let totals = match claim.is_rate {
                true => BTreeSet::from([claim.weight]),
                false => BTreeSet::from([client.total, claim.weight, claim.weight + 1]),
            };
            let totals = totals.into_iter().filter(|total| *total >= client.total);
            let kinds: Vec<_> = match client.phase {
                Phase::Idle => vec![Kind::Acquire],
                Phase::Wanting | Phase::Queued => vec![Kind::Acquire, Kind::Release(0)],
                Phase::Provisional => {
                    let total = if claim.is_rate { claim.weight } else { 0 };
                    vec![Kind::Refresh(total), Kind::Release(0)]
                }
                Phase::Held => totals
                    .flat_map(|total| [Kind::Refresh(total), Kind::Release(total)])
                    .collect(),
                Phase::Done | Phase::Dead => Vec::new(),
            };
            for kind in kinds {
                steps.push(Step::Send(at, kind));
                if kind == Kind::Acquire && may_fail {
                    steps.push(Step::SendWithoutReply(at, kind));
                }
                if client.late.is_none() && may_fail {
                    steps.push(Step::SendLate(at, kind));
                }
            }
            if client.late.is_some() {
                steps.push(Step::Arrive(at));
            }
            let is_active = !matches!(client.phase, Phase::Idle | Phase::Done | Phase::Dead);
            if is_active && may_fail {
                steps.push(Step::Die(at));
            }
            if is_active && scenario.has_operators && !client.is_revoked {
                steps.push(Step::Revoke(at));
            }
        }
        if scenario.has_operators && self.pauses < 2 {
            steps.push(Step::Pause);
        }
        if self.now() < self.paused_until {
            steps.push(Step::Resume);
        }
        steps
    }

    /// Takes a step, and checks its effect.
    pub(super) fn take(&mut self, step: Step, scenario: &Scenario, runner: &Runner) -> Checked {
        self.server.published.clear();
        let now = self.now();
        self.faults += u8::from(step.is_fault());
        match step {
            Step::Tick => self.server.now += TICK * 1_000,
            Step::Die(at) => self.clients[at].phase = Phase::Dead,
            Step::Send(at, kind) => {
                let request = self.send(at, kind);
                let reply = self.run(at, request, scenario, runner)?;
                self.hear(at, &request, &reply, scenario);
            }
            Step::SendWithoutReply(at, kind) => {
                let request = self.send(at, kind);
                self.run(at, request, scenario, runner)?;
            }
            Step::SendLate(at, kind) => self.clients[at].late = Some(self.send(at, kind)),
            Step::Arrive(at) => {
                let late = self.clients[at].late.take().expect("it is late");
                self.run(at, late, scenario, runner)?;
            }
            Step::Pause => {
                self.pauses += 1;
                self.paused_until = now + PAUSE;
                self.pause(PAUSE, runner)?;
            }
            Step::Resume => {
                self.paused_until = now;
                self.pause(0, runner)?;
            }
            Step::Revoke(at) => self.revoke(at, scenario, runner)?,
        }
        let now = self.now();
        self.oracle.move_to(now);
        self.check(scenario)?;
        if step != Step::Tick {
            self.check_wake(scenario)?;
        }
        Ok(())
    }

    /// The request of a client, which now waits for the answer.
    fn send(&mut self, at: usize, kind: Kind) -> Request {
        let now = self.now();
        let client = &mut self.clients[at];
        let request = client.request(kind, now);
        match kind {
            Kind::Acquire if client.phase == Phase::Idle => client.phase = Phase::Wanting,
            Kind::Acquire => {}
            Kind::Refresh(total) => (client.phase, client.total) = (Phase::Held, total),
            Kind::Release(_) => client.phase = Phase::Done,
        }
        request
    }

    /// A client receives an answer.
    fn hear(&mut self, at: usize, request: &Request, reply: &[Reply], scenario: &Scenario) {
        let (client, claim) = (&mut self.clients[at], scenario.claims[at]);
        if request.kind != Kind::Acquire {
            return;
        }
        match reply.get(1) {
            None => {}
            Some(Reply::Int(_)) if scenario.is_provisional => client.phase = Phase::Provisional,
            Some(Reply::Int(_)) => {
                client.phase = Phase::Held;
                client.total = if claim.is_rate { claim.weight } else { 0 };
            }
            Some(Reply::List(refusal)) => match refusal[..] {
                [Reply::Int(-2), _, _, Reply::Int(arrival), ..] => {
                    client.phase = Phase::Queued;
                    client.arrival = client.arrival.max(arrival);
                }
                _ => client.phase = Phase::Done,
            },
            other => panic!("{other:?}"),
        }
    }

    /// The server runs a request.
    fn run(
        &mut self,
        at: usize,
        request: Request,
        scenario: &Scenario,
        runner: &Runner,
    ) -> Result<Vec<Reply>, String> {
        let (verb, args) = args(at, &request, scenario);
        let (keys, now) = (keys(scenario), self.now());
        // A dead waiter keeps its place until another call removes it.
        let queue: BTreeSet<_> = self
            .members(BUDGET[1])
            .map(|(_, id)| id.to_owned())
            .collect();
        self.queue.retain(|waiter| {
            waiter.alive_until > now || queue.contains(&id(waiter.client, scenario))
        });
        let reply = runner.run(verb, &mut self.server, &keys, &args);
        let Reply::List(reply) = reply.map_err(|error| error.to_string())? else {
            return Err("no list".to_owned());
        };
        self.oracle.move_to(now);
        match request.kind {
            Kind::Acquire => self.acquired(at, &request, &reply, scenario)?,
            Kind::Refresh(total) => {
                if let Some(own) = self.oracle.reserved.get_mut(&id(at, scenario)) {
                    own.ends = now + LEASE;
                }
                self.oracle.settle(&id(at, scenario), total);
                if let Some(end) = self.units.get_mut(&at).filter(|end| **end > now) {
                    *end = now + LEASE;
                }
            }
            Kind::Release(total) => {
                self.queue.retain(|waiter| waiter.client != at);
                self.end(at, total, request.keeps, scenario);
                self.units.remove(&at);
            }
        }
        Ok(reply)
    }

    /// Ends a reservation, as a release does.
    fn end(&mut self, at: usize, total: i64, keeps: bool, scenario: &Scenario) {
        let id = id(at, scenario);
        self.oracle.settle(&id, total);
        match self.oracle.reserved.get_mut(&id) {
            Some(own) if keeps => own.is_done = true,
            _ => drop(self.oracle.reserved.remove(&id)),
        }
    }

    /// Checks the answer to an acquire, and counts its effect.
    fn acquired(
        &mut self,
        at: usize,
        request: &Request,
        reply: &[Reply],
        scenario: &Scenario,
    ) -> Checked {
        let (now, claim, id) = (self.now(), scenario.claims[at], id(at, scenario));
        if now > request.deadline() {
            return check(reply.len() == 1, || format!("late: {reply:?}"));
        }
        let is_held = self.oracle.reserved.contains_key(&id);
        let is_paused = now < self.paused_until;
        let is_revoked = self.clients[at].is_revoked && request.was_sent;
        let own = self.queue.iter().find(|waiter| waiter.client == at);
        let known = (request.arrival > 0).then_some(request.arrival);
        let arrival = own.map(|own| own.arrival).or(known).unwrap_or(i64::MAX);
        let is_ahead = |other: &Waiter| {
            other.alive_until > now && (other.arrival, other.client) < (arrival, at)
        };
        let is_first = !self.queue.iter().any(is_ahead);
        let fits = self.oracle.fits_in(0, claim.weight, LIMIT);
        let may = !is_paused && !is_revoked && (is_held || is_first && fits);
        let lasts = lasts(scenario);
        let answer = reply.last().expect("an answer");
        let Reply::List(refusal) = answer else {
            check(may, || format!("granted to {at}: {:?}", self.oracle))?;
            if !is_held {
                self.oracle.limit = LIMIT;
                let new = Reserved {
                    weight: claim.weight,
                    settled: None,
                    ends: 0,
                    is_done: false,
                };
                self.oracle.reserved.insert(id.clone(), new);
            }
            let own = self.oracle.reserved.get_mut(&id).expect("it is there");
            own.ends = own.ends.max(now + lasts);
            if lasts == LEASE {
                let spent = if claim.is_rate { claim.weight } else { 0 };
                self.oracle.settle(&id, spent);
            }
            self.queue.retain(|waiter| waiter.client != at);
            self.units.insert(at, now + lasts);
            let used = self.used();
            return check(*answer == Reply::Int(used), || {
                format!("{answer:?} of {used} are used")
            });
        };
        let numbers: Vec<_> = refusal.iter().map(number).collect();
        // A claim that comes back to its place before the head polls once more, at once.
        let is_back = own.is_none_or(|own| own.alive_until <= now)
            && known.is_some()
            && numbers.get(4) == Some(&0);
        check(!may || is_back, || {
            format!("refused {at}: {refusal:?} {:?}", self.oracle)
        })?;
        let waits = claim.waits && !is_revoked;
        // Units that this answer gives back still count in it.
        let used = self.used();
        if !waits {
            self.queue.retain(|waiter| waiter.client != at);
            self.oracle.reserved.remove(&id);
            self.units.remove(&at);
        }
        let level = if scenario.has_semaphore { 2 } else { 1 };
        let is_right = numbers[1..3] == [level, used];
        check(is_right, || format!("{numbers:?} of {used} used"))?;
        let left = self.paused_until - now;
        match (&numbers[..], waits) {
            ([-3, ..], false) => check(is_revoked, || format!("{at} is not revoked")),
            ([-4, _, _, pause], false) => check(*pause == left, || format!("{pause} ms")),
            ([0, _, _, rest @ ..], false) => {
                let due = (!is_held && is_first).then(|| self.due(claim.weight, true));
                check(!is_paused && rest == Vec::from_iter(due.flatten()), || {
                    format!("{rest:?} instead of {due:?}")
                })
            }
            ([-2, _, _, arrival, recheck, 0, pause, rest @ ..], true) => {
                check(*pause == if is_paused { left } else { -1 }, || {
                    format!("paused for {pause}")
                })?;
                self.units.insert(at, now + ALIVE);
                if is_held {
                    // It keeps its units, and takes no place in the queue.
                    let own = self.oracle.reserved.get_mut(&id).expect("it is there");
                    own.ends = own.ends.max(now + ALIVE);
                    return check(is_paused, || "it holds units".to_owned());
                }
                let earliest = self.due(claim.weight, false).unwrap_or(-1);
                check(rest == [earliest], || {
                    format!("{rest:?} instead of {earliest}")
                })?;
                self.enqueue(at, request, *arrival, *recheck)
            }
            _ => Err(format!("{numbers:?} for {at}")),
        }
    }

    /// Counts a claim that has joined the queue, or has kept its place there.
    fn enqueue(&mut self, at: usize, request: &Request, arrival: i64, recheck: i64) -> Checked {
        let now = self.now();
        let own = self.queue.iter().position(|waiter| waiter.client == at);
        let own = own.map(|own| self.queue.remove(own));
        let mut alive = self.queue.iter().filter(|other| other.alive_until > now);
        let is_last = alive.all(|other| other.arrival < arrival);
        let is_right = match (own, request.arrival) {
            (Some(own), _) => own.arrival == arrival,
            (None, 0) => is_last,
            (None, known) => known == arrival,
        };
        check(is_right, || {
            format!("{at} arrives at {arrival}: {:?}", self.queue)
        })?;
        self.queue.push(Waiter {
            arrival,
            client: at,
            alive_until: now + ALIVE,
            polls_at: (recheck >= 0).then_some(now + recheck),
        });
        // A waiter that left may come back with the arrival of another one.
        self.queue
            .sort_by_key(|waiter| (waiter.arrival, waiter.client));
        Ok(())
    }

    /// After how many ms a claim fits by time alone, with what others have reserved or without.
    fn due(&self, weight: i64, counts_reserved: bool) -> Option<i64> {
        let reserved = if counts_reserved {
            self.oracle.all_reserved()
        } else {
            0
        };
        let fits = |ms: &i64| self.oracle.spent_in(*ms) + reserved + weight <= LIMIT;
        (0..=HORIZON * TICK).find(fits)
    }

    fn used(&self) -> i64 {
        self.oracle.spent_in(0) + self.oracle.all_reserved()
    }

    fn pause(&mut self, length: i64, runner: &Runner) -> Checked {
        let length36 = base36(length as u32);
        let args = [
            "5",
            &length.to_string(),
            "2",
            &format!("o.0.0.0.0.1.{length36}."),
            ".1.!.note",
        ];
        let mut answers = Vec::new();
        // Operators pause a key for the windows that are not in use first.
        for keys in [UNUSED, BUDGET] {
            let keys = keys.map(str::to_owned);
            let reply = runner.run(
                Verb::Pause,
                &mut self.server,
                &keys,
                &args.map(str::to_owned),
            );
            answers.push(reply.map_err(|error| error.to_string())?);
        }
        let answer = |number| Reply::List(vec![Reply::Int(self.now()), Reply::Int(number)]);
        // The end of a pause of another window follows the hash.
        let expected = [answer(1), answer(i64::from(length > 0))];
        check(answers == expected, || format!("{answers:?}"))
    }

    fn revoke(&mut self, at: usize, scenario: &Scenario, runner: &Runner) -> Checked {
        let (now, id) = (self.now(), id(at, scenario));
        self.oracle.move_to(now);
        let is_alive = |waiter: &Waiter| waiter.client == at && waiter.alive_until > now;
        let must = self.oracle.reserved.contains_key(&id) || self.queue.iter().any(is_alive);
        let args = ["5", "3600", "1", &id].map(str::to_owned);
        let reply = runner.run(
            Verb::Revoke,
            &mut self.server,
            &BUDGET.map(str::to_owned),
            &args,
        );
        let was_there = match reply.map_err(|error| error.to_string())? {
            Reply::List(items) => items[1] == Reply::Int(1),
            other => return Err(format!("{other:?}")),
        };
        check(was_there || !must, || format!("{id} was there"))?;
        self.clients[at].is_revoked |= was_there;
        self.queue.retain(|waiter| waiter.client != at);
        // The holder may have used all.
        self.end(at, scenario.claims[at].weight, false, scenario);
        Ok(())
    }

    /// The server's state equals the oracle's, and no key expires too early.
    fn check(&self, scenario: &Scenario) -> Checked {
        let now = self.now();
        let state = stored(&self.server, BUDGET[3], WINDOW);
        let is_pending = self.has_ended_member();
        let expected = (self.oracle.parts, self.oracle.all_reserved());
        check(is_pending || state == expected, || {
            format!("{state:?} instead of {expected:?}")
        })?;
        let held = self.members(SEMAPHORE[0]);
        let held = held.filter(|(end, _)| *end > now).count();
        let units = self.units.values().filter(|end| **end > now).count();
        check(!scenario.has_semaphore || held == units, || {
            format!("{held} units instead of {units}")
        })?;
        for (key, entry) in self.server.entries() {
            let Some(end) = entry.expires_at else {
                return Err(format!("{key} never expires"));
            };
            if key.as_str() == BUDGET[3] || key.as_str() == BUDGET[0] {
                let mut last = self.oracle.clone();
                last.move_to(end);
                let rest = (last.spent_in(0), last.all_reserved());
                check(rest == (0, 0), || format!("{key} loses {rest:?}"))?;
            }
        }
        Ok(())
    }

    /// The scores and members of a sorted set.
    fn members(&self, key: &str) -> impl Iterator<Item = (i64, &str)> {
        let entry = self.server.entries().find(|(name, _)| *name == key);
        let items = match entry.map(|(_, entry)| &entry.value) {
            Some(Value::Sorted(sorted)) => sorted.items(),
            _ => &[],
        };
        items
            .iter()
            .map(|(score, member)| (*score as i64, &**member))
    }

    /// True if a reservation has ended that the next call will count.
    fn has_ended_member(&self) -> bool {
        let now = self.now();
        self.members(BUDGET[0]).any(|(end, _)| end <= now)
    }

    /// The head of the queue polls no later than at the first tick at which it fits, if nothing else happens.
    fn check_wake(&mut self, scenario: &Scenario) -> Checked {
        let now = self.now();
        for waiter in &mut self.queue {
            let channel = format!("s:wake:p{}", waiter.client);
            let mut messages = self.server.published.iter();
            if messages.any(|(to, text)| *to == channel && !text.ends_with("revoked")) {
                waiter.polls_at = Some(now);
            }
        }
        let Some(head) = self.queue.iter().find(|waiter| waiter.alive_until > now) else {
            return Ok(());
        };
        let id = id(head.client, scenario);
        let mut waiters = self.members(BUDGET[1]).filter(|(score, _)| *score > 0);
        if waiters.next().is_none_or(|(_, first)| first != id) {
            // A dead waiter is before it, until the next claim removes it.
            return Ok(());
        }
        let mut oracle = self.oracle.clone();
        let fits = (0..HORIZON).map(|ticks| now + ticks * TICK).find(|time| {
            oracle.move_to(*time);
            *time >= self.paused_until
                && oracle.fits_in(0, scenario.claims[head.client].weight, LIMIT)
        });
        let is_late = fits.is_some_and(|fits| head.polls_at.is_none_or(|polls| polls > fits));
        check(!is_late, || {
            format!("{head:?} does not poll at {fits:?}, now is {now}")
        })
    }

    /// A text that is equal for states that no script and no client can distinguish.
    pub(super) fn form(&self) -> String {
        let (now, mut form) = (self.now(), String::new());
        let mut write = |text: &dyn std::fmt::Debug| write!(form, "{text:?};").expect("it writes");
        for (key, entry) in self.server.entries() {
            match &entry.value {
                Value::Sorted(sorted) => {
                    write(key);
                    for (score, member) in sorted.items() {
                        let score = match *score as i64 {
                            _ if key.ends_with(":queue") => 0,
                            mark if mark < 0 => 0,
                            end => end - now,
                        };
                        let is_pause = member.contains(".!.");
                        write(&(score, if is_pause { "pause" } else { member }));
                    }
                }
                Value::Hash(fields) => {
                    for (field, value) in fields {
                        match &**field {
                            "pause" => write(&"pause"),
                            "400" => {
                                let numbers: Vec<i64> =
                                    value.split(' ').filter_map(|n| n.parse().ok()).collect();
                                let age = if numbers[0] == 0 { 0 } else { now - numbers[1] };
                                write(&(numbers[0], age, &numbers[2..]));
                            }
                            _ => write(&(field, value)),
                        }
                    }
                }
                Value::Text(_) => {}
            }
        }
        write(&(self.paused_until - now).max(0));
        write(&(self.pauses, self.faults));
        for client in &self.clients {
            let late = client.late.as_ref();
            let late = late.map(|late| {
                let age = (now - late.sent).min(2 * TICK);
                (late.kind, age, late.was_sent, late.arrival > 0, late.keeps)
            });
            let of_client = (client.phase, client.total, late, client.is_revoked);
            write(&(of_client, client.arrival > 0));
        }
        // Arrivals count only by their order.
        let mut arrivals: Vec<_> = self.clients.iter().map(|client| client.arrival).collect();
        arrivals.sort_unstable();
        for client in &self.clients {
            write(&arrivals.binary_search(&client.arrival).ok());
        }
        for waiter in &self.queue {
            let polls = waiter.polls_at.map(|at| (at - now).max(0));
            let alive = (waiter.alive_until - now).max(0);
            write(&(waiter.client, alive, polls));
        }
        form
    }
}

fn check(is_right: bool, seen: impl FnOnce() -> String) -> Checked {
    match is_right {
        true => Ok(()),
        false => Err(seen()),
    }
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        other => panic!("{other:?}"),
    }
}

fn lasts(scenario: &Scenario) -> i64 {
    match scenario.is_provisional {
        true => PROVISIONAL,
        false => LEASE,
    }
}

/// The id of a client's reservation.
fn id(at: usize, scenario: &Scenario) -> String {
    let weight = scenario.claims[at].weight;
    format!("p{at}.2.0.0.{LIMIT}.{weight}.{}.0...", base36(LEASE as u32))
}

/// The id of a client's unit of the semaphore.
fn unit(at: usize) -> String {
    format!("p{at}.1.0.0.9.1.{}.0...", base36(LEASE as u32))
}

fn keys(scenario: &Scenario) -> Vec<String> {
    let semaphore = SEMAPHORE.iter().filter(|_| scenario.has_semaphore);
    semaphore
        .chain(&BUDGET)
        .map(|key| (*key).to_owned())
        .collect()
}

/// The script that runs a request, and its arguments.
fn args(at: usize, request: &Request, scenario: &Scenario) -> (Verb, Vec<String>) {
    let (claim, id) = (scenario.claims[at], id(at, scenario));
    let levels = if scenario.has_semaphore { 2 } else { 1 };
    let with_unit = |args: &mut Vec<String>| {
        if scenario.has_semaphore {
            args.extend(["1".to_owned(), unit(at)]);
        }
    };
    match request.kind {
        Kind::Acquire => {
            let numbers = [LEASE, request.deadline(), 1_000, lasts(scenario), levels, 1];
            let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
            for (level, limit) in [9, LIMIT].into_iter().enumerate().skip(2 - levels as usize) {
                let limit = if request.was_sent { -1 } else { limit };
                let rate = if level == 1 && claim.is_rate {
                    " rate"
                } else {
                    ""
                };
                let arrival = if level == 1 { request.arrival } else { 0 };
                let waits = format!(" {ALIVE} 9 {arrival} 0");
                let waits = if claim.waits { &*waits } else { "" };
                args.push(format!("{limit}{rate}{waits}"));
            }
            with_unit(&mut args);
            args.extend([levels.to_string(), id]);
            (Verb::AcquireBudgets, args)
        }
        Kind::Refresh(total) => {
            let mut args = vec![LEASE.to_string()];
            with_unit(&mut args);
            args.extend(["1".to_owned(), format!("{id} {total}")]);
            (Verb::RefreshBudgets, args)
        }
        Kind::Release(total) => {
            let keep = if request.keeps { " keep" } else { "" };
            let mut args = vec!["1".to_owned(), "5".to_owned()];
            with_unit(&mut args);
            args.extend(["1".to_owned(), format!("{id} {total}{keep}")]);
            (Verb::ReleaseBudgets, args)
        }
    }
}
