//! Visits every state that a scenario can reach, nearest first.

use crate::{
    liveness::Rested, model::Model, scenario::Scenario, scripts::Scripts, server::Violation,
    state::State, steps::Step,
};
use std::{
    collections::HashSet,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
};

/// The result of a walk.
#[derive(Debug)]
pub struct Report {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    /// True if the walk has visited every reachable state.
    pub is_all: bool,
    /// The number of different calls that the scripts have run.
    pub calls: usize,
    /// The first broken invariant, if any.
    pub fault: Option<Fault>,
}

/// A broken invariant, and the steps that lead to it.
#[derive(Debug)]
pub struct Fault {
    /// The broken invariant.
    pub violation: Violation,
    /// The steps from the first state.
    pub steps: Vec<Step>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { invariant, seen } = &self.violation;
        writeln!(f, "{invariant}: {seen}, after:")?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

/// 128 bits of hash for a state, so that different states do not collide by chance.
pub(crate) fn hash(state: &State) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        state.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Visits the states of a scenario with these scripts, until an invariant does not hold or the scenario's number of
/// states is reached.
pub fn walk(scenario: &Scenario, scripts: &Scripts) -> Report {
    let model = Model::new(scenario.clone(), scripts);
    let first = State::new(scenario.clients.len());
    let mut walk = Walk {
        seen: HashSet::from([hash(&first)]),
        // The first state has no predecessor, so this is never read.
        ways: vec![(0, Step::Pass(0))],
        rested: Rested::new(),
        next: vec![(0, first)],
        model,
    };
    let (mut depth, mut fault) = (0, None);
    while fault.is_none() && !walk.next.is_empty() && walk.seen.len() < scenario.states {
        fault = walk.visit_depth().err();
        depth += 1;
    }
    Report {
        states: walk.seen.len(),
        depth,
        is_all: walk.next.is_empty(),
        calls: walk.model.server.calls(),
        fault,
    }
}

struct Walk {
    model: Model,
    /// The hashes of all states so far.
    seen: HashSet<u128>,
    /// For each state, the number of its predecessor and the step from there.
    ways: Vec<(u32, Step)>,
    rested: Rested,
    /// The states to visit next, each with its number.
    next: Vec<(u32, State)>,
}

impl Walk {
    /// Takes every step from every state of the present depth.
    fn visit_depth(&mut self) -> Result<(), Fault> {
        for (number, state) in mem::take(&mut self.next) {
            for step in self.model.steps(&state) {
                let next = self.take(&state, step);
                let next = next.map_err(|violation| self.fault(violation, number, step))?;
                let Some(next) = next else {
                    continue;
                };
                self.next.push((self.ways.len() as u32, next));
                self.ways.push((number, step));
            }
        }
        Ok(())
    }

    /// The state after a step, checked, if it is new.
    fn take(&mut self, state: &State, step: Step) -> Result<Option<State>, Violation> {
        let next = self.model.take(state, step)?;
        if !self.seen.insert(hash(&next)) {
            return Ok(None);
        }
        self.model.check(&next)?;
        let has_forged = self.model.scenario.revokes;
        self.model.server.inspect(next.semaphores, has_forged)?;
        self.model.comes_to_rest(&next, &mut self.rested)?;
        Ok(Some(next))
    }

    fn fault(&self, violation: Violation, number: u32, last: Step) -> Fault {
        let (mut steps, mut number) = (vec![last], number);
        while number > 0 {
            let (before, step) = self.ways[number as usize];
            steps.push(step);
            number = before;
        }
        steps.reverse();
        Fault { violation, steps }
    }
}
