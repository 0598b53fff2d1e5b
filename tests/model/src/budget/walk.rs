//! Visits the states of a budget: all within some steps, or those of random walks.

use super::{
    clients::{Claim, Kind},
    world::World,
};
use crate::{lua::Runner, scripts::Scripts};
use std::collections::HashSet;

/// The clients of a walk, and what may go wrong.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The claim of each client.
    pub claims: [Claim; 3],
    /// True if each claim first takes a unit of a semaphore.
    pub has_semaphore: bool,
    /// True if a grant must be confirmed, as on several servers.
    pub is_provisional: bool,
    /// How many faults may happen: lost replies, late requests, and crashes.
    pub faults: u8,
    /// True if operators pause the key and revoke claims.
    pub has_operators: bool,
    /// A walk visits every state within this number of steps.
    pub depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Tick,
    /// The client with this number sends a request and receives the answer.
    Send(usize, Kind),
    /// The same, but the answer is lost.
    SendWithoutReply(usize, Kind),
    /// The request stays under way.
    SendLate(usize, Kind),
    /// A request that was under way runs.
    Arrive(usize),
    Die(usize),
    Pause,
    Resume,
    Revoke(usize),
}

impl Step {
    pub(super) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::SendWithoutReply(..) | Self::SendLate(..) | Self::Die(_)
        )
    }
}

/// The end of a walk that has found a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A script has failed with this error.
    Error(String),
    /// A script differs from the oracle.
    Difference(String),
}

/// The result of a walk.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of distinct states. For random walks, the number of steps.
    pub states: usize,
    /// The mistake of a script.
    pub fault: Option<Fault>,
    /// The steps that lead to the fault.
    pub steps: Vec<String>,
}

impl Report {
    fn without_fault(states: usize) -> Self {
        Self {
            states,
            ..Self::default()
        }
    }

    fn with_fault(states: usize, fault: Fault, steps: &[Step]) -> Self {
        Self {
            states,
            fault: Some(fault),
            steps: steps.iter().map(|step| format!("{step:?}")).collect(),
        }
    }
}

/// Visits every state of a scenario within its number of steps, nearest first, until a script makes a mistake.
///
/// # Panics
///
/// If a script is not Lua.
pub fn walk(scenario: &Scenario, scripts: &Scripts) -> Report {
    let runner = Runner::new(scripts).expect("the scripts are Lua");
    let first = World::new(scenario.claims.len());
    let mut seen = HashSet::from([first.form()]);
    let mut last = vec![(first, Vec::new())];
    for _ in 0..scenario.depth {
        let mut next = Vec::new();
        for (world, way) in &last {
            for step in world.steps(scenario) {
                let (mut world, mut way) = (world.clone(), way.clone());
                way.push(step);
                if let Err(fault) = world.take(step, scenario, &runner) {
                    return Report::with_fault(seen.len(), fault, &way);
                }
                if seen.insert(world.form()) {
                    next.push((world, way));
                }
            }
        }
        last = next;
    }
    Report::without_fault(seen.len())
}

/// Takes random walks of `length` steps, until a script makes a mistake. `below` returns a random number below its
/// argument.
///
/// # Panics
///
/// If a script is not Lua.
pub fn wander(
    scenario: &Scenario,
    scripts: &Scripts,
    walks: usize,
    length: usize,
    mut below: impl FnMut(usize) -> usize,
) -> Report {
    let runner = Runner::new(scripts).expect("the scripts are Lua");
    for number in 0..walks {
        let (mut world, mut way) = (World::new(scenario.claims.len()), Vec::new());
        for _ in 0..length {
            let steps = world.steps(scenario);
            let step = steps[below(steps.len())];
            way.push(step);
            if let Err(fault) = world.take(step, scenario, &runner) {
                return Report::with_fault(number * length + way.len(), fault, &way);
            }
        }
    }
    Report::without_fault(walks * length)
}
