//! The answers of the scripts, and how calls change what the oracle counts.

use super::{
    call::{LIMIT, id, lasts, levels},
    clients::{Claim, Request},
    walk::Scenario,
    world::{Checked, World, check, differs},
};
use crate::{
    stand_in::Reply,
    time::{ALIVE, LEASE, TICK},
};

/// After this number of ticks everything has come back.
pub(super) const HORIZON: i64 = 40;

/// A claim in the queue of the budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// In microseconds.
    pub(super) arrival: i64,
    pub(super) client: usize,
    pub(super) alive_until: i64,
    /// When it polls next: at once if it was notified.
    pub(super) polls_at: Option<i64>,
}

/// An acquire, and the state of its claim before it.
struct Asked {
    at: usize,
    id: String,
    claim: Claim,
    /// The arrival that the client knows, in microseconds; 0 if it knows none.
    arrival: i64,
    is_held: bool,
    /// True if no live waiter is before it.
    is_first: bool,
    is_revoked: bool,
    /// For how many ms the budget is still paused.
    pause: Option<i64>,
    may_be_granted: bool,
    /// True if it has left the queue or counts as dead, and comes back while another waiter lives.
    comes_back: bool,
}

impl World {
    fn asked(&self, at: usize, request: &Request, scenario: &Scenario) -> Asked {
        let (now, claim, id) = (self.now(), scenario.claims[at], id(at, scenario));
        let own = self.queue.iter().find(|waiter| waiter.client == at);
        let known = (request.arrival > 0).then_some(request.arrival);
        let arrival = own.map(|own| own.arrival).or(known).unwrap_or(i64::MAX);
        let live = |waiter: &&Waiter| waiter.alive_until > now;
        let mut others = self
            .queue
            .iter()
            .filter(live)
            .filter(|other| other.client != at);
        let is_alone = others.clone().next().is_none();
        let is_first = others.all(|other| (other.arrival, other.client) > (arrival, at));
        let is_revoked = self.clients[at].is_revoked && request.was_sent;
        let pause = Some(self.paused_until - now).filter(|left| *left > 0);
        let is_held = self.oracle.has(&id);
        let fits = is_first && self.oracle.fits_in(0, claim.weight, LIMIT);
        Asked {
            at,
            id,
            claim,
            arrival: request.arrival,
            is_held,
            is_first,
            is_revoked,
            pause,
            may_be_granted: pause.is_none() && !is_revoked && (is_held || fits),
            comes_back: own.filter(live).is_none() && known.is_some() && !is_alone,
        }
    }

    /// Checks the answer to an acquire that is not late, and counts its effect.
    pub(super) fn acquired(
        &mut self,
        at: usize,
        request: &Request,
        answer: &[Reply],
        scenario: &Scenario,
    ) -> Checked {
        let asked = self.asked(at, request, scenario);
        let [Reply::List(refusal)] = answer else {
            return self.granted(&asked, answer, scenario);
        };
        let refusal: Vec<_> = refusal.iter().map(number).collect();
        let counts = [levels(scenario), self.used()];
        check(refusal.get(1..3) == Some(&counts), || {
            format!("{refusal:?} instead of {counts:?}")
        })?;
        if asked.claim.waits && !asked.is_revoked {
            self.queued(&asked, &refusal)
        } else {
            self.refused(&asked, &refusal)
        }
    }

    fn granted(&mut self, asked: &Asked, answer: &[Reply], scenario: &Scenario) -> Checked {
        let (at, claim, until) = (asked.at, asked.claim, self.now() + lasts(scenario));
        check(asked.may_be_granted, || {
            format!("granted to {at}: {:?}", self.oracle)
        })?;
        let spent = (lasts(scenario) == LEASE).then(|| claim.spent_at_once());
        self.oracle
            .grant(&asked.id, claim.weight, LIMIT, until, spent);
        self.queue.retain(|waiter| waiter.client != at);
        self.units.insert(at, until);
        // For each level a token and the units in use. A budget's token is 1.
        let budget = [1, self.used()].map(Reply::Int);
        let is_right = match answer {
            [Reply::Int(_), units, rest @ ..] if scenario.has_semaphore => {
                *units == Reply::Int(self.live_units()) && rest == budget
            }
            all => all == budget,
        };
        check(is_right, || format!("{answer:?} instead of {budget:?}"))
    }

    /// A claim that does not wait, or was revoked, has nothing any more.
    fn refused(&mut self, asked: &Asked, refusal: &[i64]) -> Checked {
        let at = asked.at;
        check(!asked.may_be_granted, || {
            format!("refused {at}: {refusal:?} {:?}", self.oracle)
        })?;
        self.queue.retain(|waiter| waiter.client != at);
        self.oracle.reserved.remove(&asked.id);
        self.units.remove(&at);
        check(asked.is_revoked == (refusal[0] == -3), || {
            format!("{at}: {refusal:?}, is revoked: {}", asked.is_revoked)
        })?;
        match *refusal {
            [-3, _, _] => Ok(()),
            [-4, _, _, left] => check(asked.pause == Some(left), || format!("paused for {left}")),
            [0, _, _, ref rest @ ..] => {
                let due = asked
                    .is_first
                    .then(|| self.due(asked.claim.weight, self.oracle.all_reserved()));
                let due = Vec::from_iter(due.flatten());
                check(asked.pause.is_none() && *rest == due, || {
                    format!("{rest:?} instead of {due:?}")
                })
            }
            _ => Err(differs(format!("{refusal:?} for {at}"))),
        }
    }

    fn queued(&mut self, asked: &Asked, refusal: &[i64]) -> Checked {
        let (at, now) = (asked.at, self.now());
        let [-2, _, _, arrival, recheck, 0, pause, ref rest @ ..] = *refusal else {
            return Err(differs(format!("{refusal:?} for {at}")));
        };
        check(pause == asked.pause.unwrap_or(-1), || {
            format!("paused for {pause}")
        })?;
        // A claim that comes back to its place before the head polls once more, at once.
        let polls_at_once = recheck == 0;
        let is_right = if asked.may_be_granted {
            asked.comes_back && polls_at_once
        } else {
            !polls_at_once
        };
        check(is_right, || {
            format!("refused {at}: {refusal:?} {:?}", self.oracle)
        })?;
        self.units.insert(at, now + ALIVE);
        if asked.is_held {
            // It keeps its units until the end of the pause, and takes no place in the queue.
            self.oracle.extend(&asked.id, now + ALIVE);
            let is_right = asked.pause == Some(recheck) && arrival == 0 && rest == [-1];
            return check(is_right, || format!("it holds units: {refusal:?}"));
        }
        let earliest = self.due(asked.claim.weight, 0).unwrap_or(-1);
        check(*rest == [earliest], || {
            format!("{rest:?} instead of {earliest}")
        })?;
        self.enqueue(asked, arrival, (recheck >= 0).then_some(now + recheck))
    }

    /// Counts a claim that has joined the queue, or has kept its place there.
    fn enqueue(&mut self, asked: &Asked, arrival: i64, polls_at: Option<i64>) -> Checked {
        let (at, now) = (asked.at, self.now());
        let own = self.queue.iter().position(|waiter| waiter.client == at);
        let own = own.map(|own| self.queue.remove(own));
        let mut alive = self.queue.iter().filter(|other| other.alive_until > now);
        let is_last = alive.all(|other| other.arrival < arrival);
        let is_right = match (own, asked.arrival) {
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
            polls_at,
        });
        // A waiter that left may come back with the arrival of another one.
        self.queue
            .sort_by_key(|waiter| (waiter.arrival, waiter.client));
        Ok(())
    }

    /// Checks the answer to a refresh, and counts its effect.
    pub(super) fn refreshed(
        &mut self,
        at: usize,
        total: i64,
        answer: &[Reply],
        scenario: &Scenario,
    ) -> Checked {
        let (id, until) = (id(at, scenario), self.now() + LEASE);
        // A permit whose reservation was spent goes on, unless it was revoked.
        let goes_on = self.oracle.has(&id) || !self.clients[at].is_revoked;
        self.check_held(at, goes_on, answer, scenario)?;
        if let Some(own) = self.oracle.reserved.get_mut(&id) {
            own.ends = until;
        }
        self.oracle.settle(&id, total);
        if self.has_unit(at) {
            self.units.insert(at, until);
        }
        Ok(())
    }

    /// Checks the answer to a release, and counts its effect.
    pub(super) fn released(
        &mut self,
        at: usize,
        total: i64,
        keeps: bool,
        answer: &[Reply],
        scenario: &Scenario,
    ) -> Checked {
        let id = id(at, scenario);
        self.check_held(at, self.oracle.has(&id), answer, scenario)?;
        self.queue.retain(|waiter| waiter.client != at);
        self.oracle.release(&id, total, keeps);
        self.units.remove(&at);
        Ok(())
    }

    /// An answer has 1 for each unit that is held, and else 0.
    fn check_held(
        &self,
        at: usize,
        is_held: bool,
        answer: &[Reply],
        scenario: &Scenario,
    ) -> Checked {
        let unit = scenario.has_semaphore.then(|| self.has_unit(at));
        let expected = unit.into_iter().chain([is_held]);
        let expected: Vec<_> = expected.map(|is_held| Reply::Int(is_held.into())).collect();
        check(answer == expected, || {
            format!("{answer:?} instead of {expected:?}")
        })
    }

    fn has_unit(&self, at: usize) -> bool {
        self.units.get(&at).is_some_and(|end| *end > self.now())
    }

    /// The number of held units of the semaphore.
    pub(super) fn live_units(&self) -> i64 {
        let live = self.units.values().filter(|end| **end > self.now());
        live.count() as i64
    }

    /// After how many ms a claim fits by time alone, beside this number of reserved units.
    fn due(&self, weight: i64, reserved: i64) -> Option<i64> {
        let fits = |ms: &i64| self.oracle.spent_in(*ms) + reserved + weight <= LIMIT;
        (0..=HORIZON * TICK).find(fits)
    }

    pub(super) fn used(&self) -> i64 {
        self.oracle.spent_in(0) + self.oracle.all_reserved()
    }
}

fn number(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        other => panic!("{other:?}"),
    }
}
