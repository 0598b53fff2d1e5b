//! A state of a walk: the server, the oracle and the clients.

use super::{
    answers::Waiter,
    call::{BUDGET, UNUSED, WINDOW, args, channel, id, keys},
    clients::{Client, Kind, Phase, Request},
    oracle::Oracle,
    walk::{Fault, Scenario, Step},
};
use crate::{
    lua::Runner,
    scripts::Verb,
    stand_in::{Reply, StandIn},
    time::{NOW_MS, TICK},
    unit::base36,
};
use std::collections::{BTreeMap, BTreeSet};

/// The length of a pause, in ms.
const PAUSE: i64 = 2 * TICK;

/// How long a revocation is stored, in ms: longer than any walk.
const REMEMBER: &str = "3600000";

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) server: StandIn,
    pub(super) oracle: Oracle,
    /// The oracle after the last call that ran and was not late. The server still has the reservations that have
    /// ended since then.
    pub(super) counted: Oracle,
    pub(super) clients: Vec<Client>,
    pub(super) queue: Vec<Waiter>,
    /// The end of the last pause.
    pub(super) paused_until: i64,
    /// The number of pauses so far.
    pub(super) pauses: u8,
    /// The number of faults so far.
    pub(super) faults: u8,
    /// The ends of the units of the semaphore, by client.
    pub(super) units: BTreeMap<usize, i64>,
}

pub(super) type Checked<T = ()> = Result<T, Fault>;

impl World {
    pub(super) fn new(clients: usize) -> Self {
        let oracle = Oracle::new(WINDOW, NOW_MS);
        Self {
            server: StandIn::at(NOW_MS * 1_000),
            counted: oracle.clone(),
            oracle,
            clients: vec![Client::new(); clients],
            queue: Vec::new(),
            paused_until: 0,
            pauses: 0,
            faults: 0,
            units: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> i64 {
        self.server.now / 1_000
    }

    /// The steps that are possible now.
    pub(super) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = vec![Step::Tick];
        for at in 0..self.clients.len() {
            self.add_requests(at, scenario, &mut steps);
            self.add_ends(at, scenario, &mut steps);
        }
        if scenario.has_operators && self.pauses < 2 {
            steps.push(Step::Pause);
        }
        if self.now() < self.paused_until {
            steps.push(Step::Resume);
        }
        steps
    }

    /// Adds what a client may send, and the arrival of its late request.
    fn add_requests(&self, at: usize, scenario: &Scenario, steps: &mut Vec<Step>) {
        let (client, may_fail) = (&self.clients[at], self.faults < scenario.faults);
        for kind in client.kinds(scenario.claims[at]) {
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
    }

    /// Adds the crash and the revocation of a client.
    fn add_ends(&self, at: usize, scenario: &Scenario, steps: &mut Vec<Step>) {
        let client = &self.clients[at];
        if client.is_active() && self.faults < scenario.faults {
            steps.push(Step::Die(at));
        }
        if client.is_active() && scenario.has_operators && !client.is_revoked {
            steps.push(Step::Revoke(at));
        }
    }

    /// Takes a step, and checks its effect.
    pub(super) fn take(&mut self, step: Step, scenario: &Scenario, runner: &Runner) -> Checked {
        self.server.published.clear();
        self.faults += u8::from(step.is_fault());
        match step {
            Step::Tick => self.server.now += TICK * 1_000,
            Step::Die(at) => self.clients[at].phase = Phase::Dead,
            Step::Send(at, kind) => {
                let request = self.send(at, kind);
                let answer = self.run(at, request, scenario, runner)?;
                self.receive(at, &request, &answer, scenario);
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
                self.pause(PAUSE, runner)?;
            }
            Step::Resume => self.pause(0, runner)?,
            Step::Revoke(at) => self.revoke(at, scenario, runner)?,
        }
        self.oracle.move_to(self.now());
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
    fn receive(&mut self, at: usize, request: &Request, answer: &[Reply], scenario: &Scenario) {
        let (client, claim) = (&mut self.clients[at], scenario.claims[at]);
        if request.kind != Kind::Acquire {
            return;
        }
        match answer.first() {
            None => {}
            Some(Reply::Int(_)) if scenario.is_provisional => client.phase = Phase::Provisional,
            Some(Reply::Int(_)) => {
                (client.phase, client.total) = (Phase::Held, claim.spent_at_once());
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

    /// The server runs a request. Returns the answer without the server's time.
    fn run(
        &mut self,
        at: usize,
        request: Request,
        scenario: &Scenario,
        runner: &Runner,
    ) -> Checked<Vec<Reply>> {
        self.remove_dead_waiters(scenario);
        let (verb, args) = args(at, &request, scenario);
        let answer = self.call(verb, &keys(scenario), &args, runner)?;
        if request.is_late(self.now()) {
            check(answer.is_empty(), || format!("late: {answer:?}"))?;
            return Ok(answer);
        }
        self.oracle.move_to(self.now());
        match request.kind {
            Kind::Acquire => self.acquired(at, &request, &answer, scenario)?,
            Kind::Refresh(total) => self.refreshed(at, total, &answer, scenario)?,
            Kind::Release(total) => self.released(at, total, request.keeps, &answer, scenario)?,
        }
        self.counted = self.oracle.clone();
        Ok(answer)
    }

    /// Runs a script. Returns its answer without the server's time.
    fn call(
        &mut self,
        verb: Verb,
        keys: &[String],
        args: &[String],
        runner: &Runner,
    ) -> Checked<Vec<Reply>> {
        let reply = runner.run(verb, &mut self.server, keys, args);
        match reply.map_err(|error| Fault::Error(error.to_string()))? {
            Reply::List(mut all) if all.first() == Some(&Reply::Int(self.now())) => {
                all.remove(0);
                Ok(all)
            }
            other => Err(differs(format!("{other:?}, now is {}", self.now()))),
        }
    }

    /// A dead waiter keeps its place until a call removes it.
    fn remove_dead_waiters(&mut self, scenario: &Scenario) {
        let now = self.now();
        let listed: BTreeSet<_> = self.waiters().map(str::to_owned).collect();
        self.queue.retain(|waiter| {
            waiter.alive_until > now || listed.contains(&id(waiter.client, scenario))
        });
    }

    /// Pauses the budget for this number of ms from now on, or ends its pause.
    fn pause(&mut self, length: i64, runner: &Runner) -> Checked {
        self.paused_until = self.now() + length;
        let length36 = base36(length as u32);
        let args = [
            "5",
            &length.to_string(),
            "2",
            &format!("o.0.0.0.0.1.{length36}."),
            ".1.!.note",
        ];
        let args = args.map(str::to_owned);
        // Operators pause a key for the windows that are not in use first. The end of the pause of another window follows
        // the hash.
        for (keys, is_done) in [(UNUSED, true), (BUDGET, length > 0)] {
            let answer = self.call(Verb::Pause, &keys.map(str::to_owned), &args, runner)?;
            let expected = [Reply::Int(is_done.into())];
            check(answer == expected, || format!("{answer:?}"))?;
        }
        self.oracle.move_to(self.now());
        self.counted = self.oracle.clone();
        Ok(())
    }

    fn revoke(&mut self, at: usize, scenario: &Scenario, runner: &Runner) -> Checked {
        let id = id(at, scenario);
        self.oracle.move_to(self.now());
        // Dead waiters can be revoked too.
        let was_there = self.oracle.has(&id) || self.waiters().any(|waiter| waiter == id);
        let (keys, args) = (
            BUDGET.map(str::to_owned),
            ["5", REMEMBER, "1", &id].map(str::to_owned),
        );
        let answer = self.call(Verb::Revoke, &keys, &args, runner)?;
        check(answer == [Reply::Int(was_there.into())], || {
            format!("{answer:?} for {id}, which was there: {was_there}")
        })?;
        let revoked = (channel(at), "2 revoked".to_owned());
        let expected = was_there.then_some(revoked);
        let published = self.server.published.iter();
        let sent: Vec<_> = published
            .filter(|(_, text)| text.ends_with(" revoked"))
            .collect();
        check(sent == Vec::from_iter(&expected), || {
            format!("{sent:?} instead of {expected:?}")
        })?;
        self.clients[at].is_revoked |= was_there;
        self.queue.retain(|waiter| waiter.client != at);
        // The holder may have used all.
        self.oracle.release(&id, scenario.claims[at].weight, false);
        self.counted = self.oracle.clone();
        Ok(())
    }
}

pub(super) fn check(is_right: bool, seen: impl FnOnce() -> String) -> Checked {
    if is_right {
        Ok(())
    } else {
        Err(differs(seen()))
    }
}

pub(super) fn differs(seen: String) -> Fault {
    Fault::Difference(seen)
}
