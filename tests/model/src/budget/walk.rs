//! Visits every state of a budget, nearest first.

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
    /// The walk ends after the depth at which it has seen this number of states.
    pub states: usize,
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

/// The result of a walk.
#[derive(Debug)]
pub struct Report {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    /// A difference between the scripts and the oracle, and the steps that lead to it.
    pub fault: Option<String>,
}

/// Visits the states of a scenario with these scripts, until a script differs from the oracle or the scenario's number of
/// states is reached.
///
/// # Panics
///
/// If a script is not Lua.
pub fn walk(scenario: &Scenario, scripts: &Scripts) -> Report {
    let runner = Runner::new(scripts).expect("the scripts are Lua");
    let first = World::new(scenario.claims.len());
    let mut seen = HashSet::from([first.form()]);
    let (mut last, mut depth) = (vec![(first, Vec::new())], 0);
    while !last.is_empty() && seen.len() < scenario.states {
        let mut next = Vec::new();
        for (world, way) in &last {
            for step in world.steps(scenario) {
                let (mut world, mut way) = (world.clone(), way.clone());
                way.push(step);
                if let Err(seen_fault) = world.take(step, scenario, &runner) {
                    return Report {
                        states: seen.len(),
                        depth,
                        fault: Some(format!("{seen_fault} after {way:#?}")),
                    };
                }
                if seen.insert(world.form()) {
                    next.push((world, way));
                }
            }
        }
        (last, depth) = (next, depth + 1);
    }
    Report {
        states: seen.len(),
        depth,
        fault: None,
    }
}
