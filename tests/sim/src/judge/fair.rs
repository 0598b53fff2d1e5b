//! Fair queues, judged by a model of flows that knows no tags: which waiters came when, and which flows have passed
//! others.

use super::{Verdict, check, effect::Effect};
use crate::server::Set;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// The cost of a unit of a flow with share 1.
const UNIT: i64 = 100_000;

/// Two flows with different costs may want the same turn. One of them then comes a little later, by this cost at most.
const TIES: i64 = 300;

/// How many waiters one call looks at because others have left before them.
const LOOKED: usize = 500;

#[derive(Debug, Clone)]
struct Waiter {
    /// Its number in the order of arrivals.
    place: u64,
    flow: String,
    cost: i64,
    score: i64,
    /// True if it came before the first flow.
    is_early: bool,
}

/// The judge's knowledge of a queue since it was last empty.
#[derive(Debug, Default)]
pub(super) struct Fair {
    waiters: BTreeMap<String, Waiter>,
    /// The costs granted to one flow while another one waited, by the waiting flow and the granted one. They count
    /// since the waiting flow was last granted something, or began to wait.
    passed: BTreeMap<(String, String), Vec<i64>>,
    /// Flows that may have lost turns: claims left before later ones, and one call looks at a limited number of
    /// waiters.
    indebted: BTreeSet<String>,
    heaviest: BTreeMap<String, i64>,
    costs: BTreeSet<i64>,
    last: u64,
    is_fair: bool,
    /// True if the order of arrivals is not known.
    is_vague: bool,
}

impl Fair {
    /// True once claims with flows have come.
    pub(super) fn is_fair(&self) -> bool {
        self.is_fair
    }

    /// The server goes on with other data, or its data is not known.
    pub(super) fn forget(&mut self) {
        self.is_vague = true;
    }

    pub(super) fn ran(&mut self, script: &Effect<'_>) -> Verdict {
        self.look(&script.before.queue);
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
            // The queue may have been empty after the last waiter left and before the first one came.
            self.is_vague = true;
        }
        self.note_debts(&gone, script);
        let is_judged = self.is_fair && !self.is_vague;
        for (id, waiter) in granted.iter().filter(|_| is_judged) {
            self.check_grant(script, (id, waiter), &granted)?;
        }
        for (_, waiter) in &granted {
            self.passed.retain(|(victim, _), _| *victim != waiter.flow);
        }
        // A flow without waiters begins again when a claim of it waits.
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

    /// Compares the known waiters with the server's queue.
    fn look(&mut self, queue: &Set) {
        if queue.is_empty() {
            *self = Self::default();
        }
        let is_known = |(id, score): &(String, i64)| {
            self.waiters
                .get(id)
                .is_some_and(|waiter| waiter.score == *score)
        };
        if queue.len() != self.waiters.len() || !queue.iter().all(is_known) {
            self.is_vague = true;
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
            place: self.last,
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

    /// When a waiter leaves, the later waiters of its flow move up. If one call has too many of them to look at, the
    /// flow may lose turns.
    fn note_debts(&mut self, gone: &[(String, Waiter)], script: &Effect<'_>) {
        let looked = gone.len() * script.before.queue.len();
        if looked > LOOKED {
            let flows = gone.iter().map(|(_, waiter)| waiter.flow.clone());
            self.indebted.extend(flows);
        }
    }

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
            let is_first = waiter.place < own.place && (waiter.flow == own.flow || waiter.is_early);
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
            self.pass(script, (flow, own))?;
        }
        Ok(())
    }

    /// A flow is granted something while another one waits. If all claims cost the same and no turn was lost, at most
    /// one claim may pass between two grants of the waiting flow. (A lost turn leaves a tag that a newcomer may take.)
    /// Otherwise the passing claims may cost as much as the heaviest claim of the waiting flow, plus one claim.
    fn pass(&mut self, script: &Effect<'_>, (victim, own): (String, &Waiter)) -> Verdict {
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

/// The flow of an id, and the cost of its permit for that flow.
fn flow_of(id: &str) -> (String, i64) {
    let parts: Vec<_> = id.split('.').collect();
    let number = |part: usize| i64::from_str_radix(parts[part], 36).ok();
    let [weight, share] = [5, 8].map(number);
    let (cost, share) = (UNIT * weight.unwrap_or(0), share.unwrap_or(1));
    (parts[9].to_owned(), (cost + share - 1) / share)
}

fn is_granted(script: &Effect<'_>, id: &str) -> bool {
    let has = |held: &Set| {
        held.iter()
            .any(|(unit, end)| unit == id && *end > script.clock)
    };
    has(&script.after.held) && !has(&script.before.held)
}
