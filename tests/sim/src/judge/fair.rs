//! Fair queues. The scripts order waiters by tags. The judge knows no tags: it remembers which waiters came when, and
//! which flows were granted something while others waited.

use super::{Verdict, check, effect::Effect};
use crate::server::Set;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// The cost of a unit of a flow with share 1.
const UNIT: i64 = 100_000;

/// If two flows want the same turn, one of them comes a little later, by this cost at most.
const TIES: i64 = 300;

/// How many waiters one call moves up because others have left before them, at most: `MAX_ADVANCED` in grant.lua.
const MOST_MOVES: usize = 500;

#[derive(Debug, Clone)]
struct Waiter {
    /// Its number in the order of arrivals.
    number: u64,
    flow: String,
    cost: i64,
    score: i64,
    /// True if it came before the first claim with a flow.
    is_early: bool,
}

/// The judge's knowledge of a queue since it was last empty.
#[derive(Debug, Default)]
pub(super) struct Fair {
    waiters: BTreeMap<String, Waiter>,
    /// The costs granted to one flow while another one waited, since the waiting flow was last granted something or
    /// began to wait. The key is the waiting flow, and then the granted one.
    passed: BTreeMap<(String, String), Vec<i64>>,
    /// Flows that may have lost turns: a call could not move up all waiters behind claims that left.
    indebted: BTreeSet<String>,
    /// The highest cost of a claim of each flow.
    heaviest: BTreeMap<String, i64>,
    /// The costs of all claims.
    costs: BTreeSet<i64>,
    /// The number of the last arrival.
    last: u64,
    is_fair: bool,
    /// True if the order of arrivals is not known. Then nothing is checked until the queue is empty.
    is_order_unknown: bool,
}

impl Fair {
    /// True once claims with flows have come.
    pub(super) fn is_fair(&self) -> bool {
        self.is_fair
    }

    /// The server continues with other data, or with data that the judge does not know.
    pub(super) fn forget(&mut self) {
        self.is_order_unknown = true;
    }

    /// A server has run a script. Checks the grants among the waiters, and notes who left and who came.
    pub(super) fn ran(&mut self, script: &Effect<'_>) -> Verdict {
        self.compare(&script.before.queue);
        let stays = |id: &String, waiter: &Waiter| {
            let mut after = script.after.queue.iter();
            // A waiter may have moved up, to a lower score. If it has joined again, its score is higher.
            after.any(|(other, score)| other == id && *score <= waiter.score)
        };
        let waiters = mem::take(&mut self.waiters);
        let (stay, left): (BTreeMap<_, _>, BTreeMap<_, _>) = waiters
            .into_iter()
            .partition(|(id, waiter)| stays(id, waiter));
        let (granted, gone): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(id, _)| is_granted(script, id));
        self.waiters = stay;
        for (id, score) in &script.after.queue {
            let stays = self.waiters.get_mut(id);
            stays.into_iter().for_each(|waiter| waiter.score = *score);
        }
        let comes = |(id, _): &(String, i64)| !self.waiters.contains_key(id);
        if self.waiters.is_empty()
            && script.after.queue.iter().any(comes)
            && !script.before.queue.is_empty()
        {
            // All waiters have left, and others came. The queue may have been empty in between.
            self.is_order_unknown = true;
        }
        self.note_debts(&gone, script);
        let is_judged = self.is_fair && !self.is_order_unknown;
        for (id, waiter) in granted.iter().filter(|_| is_judged) {
            self.check_grant(script, (id, waiter), &granted)?;
        }
        for (_, waiter) in &granted {
            self.passed.retain(|(victim, _), _| *victim != waiter.flow);
        }
        // For a flow without waiters, the costs count from its next waiter on.
        let waiting: BTreeSet<_> = self
            .waiters
            .values()
            .map(|waiter| waiter.flow.clone())
            .collect();
        self.passed
            .retain(|(victim, _), _| waiting.contains(victim));
        self.join(script);
        Ok(())
    }

    /// Compares the known waiters with the server's queue. If they differ, adopts those of the server.
    fn compare(&mut self, queue: &Set) {
        if queue.is_empty() {
            *self = Self::default();
        }
        let is_known = |(id, score): &(String, i64)| {
            self.waiters
                .get(id)
                .is_some_and(|waiter| waiter.score == *score)
        };
        if queue.len() != self.waiters.len() || !queue.iter().all(is_known) {
            self.is_order_unknown = true;
            self.waiters.clear();
            for (id, score) in queue {
                self.add(id, *score);
            }
        }
    }

    fn add(&mut self, id: &str, score: i64) {
        let (flow, cost) = flow_of(id);
        self.is_fair |= !flow.is_empty();
        self.last += 1;
        self.costs.insert(cost);
        let heaviest = self.heaviest.entry(flow.clone()).or_default();
        *heaviest = cost.max(*heaviest);
        let waiter = Waiter {
            number: self.last,
            flow,
            cost,
            score,
            is_early: !self.is_fair,
        };
        self.waiters.insert(id.to_owned(), waiter);
    }

    /// Notes the waiters that come with this run, in the order of its claims.
    fn join(&mut self, script: &Effect<'_>) {
        let queue = script.after.queue.iter();
        let new = queue.filter(|(id, _)| !self.waiters.contains_key(id));
        let mut new: Vec<_> = new.collect();
        new.sort_by_key(|(id, _)| script.place(id));
        for (id, score) in new {
            self.add(id, *score);
        }
    }

    /// When a waiter leaves, the later waiters of its flow move up. If these are too many for one call, the flow may
    /// lose turns.
    fn note_debts(&mut self, gone: &[(String, Waiter)], script: &Effect<'_>) {
        let moves = gone.len() * script.before.queue.len();
        if moves > MOST_MOVES {
            let flows = gone.iter().map(|(_, waiter)| waiter.flow.clone());
            self.indebted.extend(flows);
        }
    }

    /// Checks that a granted waiter passes no other waiter out of turn.
    fn check_grant(
        &mut self,
        script: &Effect<'_>,
        (id, own): (&String, &Waiter),
        granted: &[(String, Waiter)],
    ) -> Verdict {
        let is_alive = |id: &String| {
            let mut alive = script.after.alive.iter();
            alive.any(|(other, until)| other == id && *until > script.clock)
        };
        let alive = self.waiters.iter().filter(|(id, _)| is_alive(id));
        let alive: Vec<_> = alive
            .map(|(id, waiter)| (id.clone(), waiter.clone()))
            .collect();
        for (other, waiter) in &alive {
            let is_first =
                waiter.number < own.number && (waiter.flow == own.flow || waiter.is_early);
            check(own.is_early || !is_first, "F5", || {
                script.describe(&format!("{id} passes {other}, which came before it"))
            })?;
        }
        let flows = alive.into_iter().filter(|(_, waiter)| !waiter.is_early);
        let flows: BTreeSet<_> = flows.map(|(_, waiter)| waiter.flow).collect();
        for flow in flows.into_iter().filter(|flow| *flow != own.flow) {
            let is_served = granted.iter().any(|(_, other)| other.flow == flow);
            if is_served || own.is_early || self.indebted.contains(&flow) {
                continue;
            }
            self.check_pass(script, (flow, own))?;
        }
        Ok(())
    }

    /// A flow is granted something while another one, the victim, waits. If all claims cost the same and no flow has
    /// lost turns, at most one claim may pass between two grants of the victim. (A newcomer may take a lost turn.)
    /// Otherwise the passing claims, without the last, may cost as much as the victim's heaviest claim.
    fn check_pass(&mut self, script: &Effect<'_>, (victim, own): (String, &Waiter)) -> Verdict {
        let most = self.heaviest.get(&victim).copied().unwrap_or_default() + TIES;
        let pair = (victim, own.flow.clone());
        let passed = self.passed.entry(pair.clone()).or_default();
        passed.push(own.cost);
        let before: i64 = passed[..passed.len() - 1].iter().sum();
        let is_strict = self.costs.len() == 1 && self.indebted.is_empty();
        let is_right = match is_strict {
            true => passed.len() == 1,
            false => before < most,
        };
        check(is_right, "F5", || {
            script.describe(&format!(
                "{:?} is passed by {:?}: {passed:?}",
                pair.0, pair.1
            ))
        })
    }
}

/// The flow of an id, and the cost of its permit for that flow: units divided by the share. Of the parts that
/// [`IdFields`](crate::wire::IdFields) lists, 5 is the weight, 8 the share and 9 the flow.
fn flow_of(id: &str) -> (String, i64) {
    let parts: Vec<_> = id.split('.').collect();
    let number = |part: usize| i64::from_str_radix(parts[part], 36).ok();
    let [weight, share] = [5, 8].map(number);
    let (cost, share) = (UNIT * weight.unwrap_or(0), share.unwrap_or(1));
    (parts[9].to_owned(), (cost + share - 1) / share)
}

/// True if this script has granted the id.
fn is_granted(script: &Effect<'_>, id: &str) -> bool {
    let has = |held: &Set| {
        held.iter()
            .any(|(unit, end)| unit == id && *end > script.clock)
    };
    has(&script.after.held) && !has(&script.before.held)
}
