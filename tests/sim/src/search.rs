//! Runs schedules until one fails, shortens it, and explains the failure.

use crate::{
    judge::Violation,
    schedule::{Schedule, Workload},
    world::run,
};
use model::lua::Runner;
use std::{fmt, ops::Range};

/// A schedule that has failed.
#[derive(Debug)]
pub struct Found {
    /// The seed of the whole schedule.
    pub seed: u64,
    /// The first violation in the whole schedule.
    pub violation: Violation,
    /// The shortened schedule, which still breaks the same promise.
    pub schedule: Schedule,
    /// The trace of the shortened schedule.
    pub trace: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, schedule, .. } = self;
        let workload = schedule.workload.name();
        let again =
            format!("WORKLOAD={workload} SEED={seed} cargo test -p tower-semaphore-sim one");
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "seed {seed}, repeated by: {again}")?;
        writeln!(
            f,
            "made shorter: {} processes, {} servers, lease {:?}, {} steps",
            schedule.processes,
            schedule.servers,
            schedule.lease,
            schedule.steps.len()
        )?;
        f.write_str(&self.trace)
    }
}

/// Runs the schedules of these seeds until one fails. Returns its seed and the violation.
pub fn first(
    runner: &Runner,
    (workload, seeds): (Workload, Range<u64>),
) -> Option<(u64, Violation)> {
    seeds.into_iter().find_map(|seed| {
        let outcome = run(runner, &Schedule::new(workload, seed), false);
        Some((seed, outcome.violation?))
    })
}

/// Shortens the schedule of a seed that fails, and runs it once more with a trace.
pub fn explain(runner: &Runner, workload: Workload, (seed, violation): (u64, Violation)) -> Found {
    let schedule = shorter(runner, Schedule::new(workload, seed), violation.rule);
    let trace = run(runner, &schedule, true).trace;
    Found {
        seed,
        violation,
        schedule,
        trace,
    }
}

/// Removes steps, many at a time and then one by one, as long as the same rule is violated.
fn shorter(runner: &Runner, mut schedule: Schedule, rule: &str) -> Schedule {
    let mut size = schedule.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < schedule.steps.len() {
            let mut less = schedule.clone();
            less.steps.drain(at..(at + size).min(schedule.steps.len()));
            let outcome = run(runner, &less, false);
            match outcome
                .violation
                .is_some_and(|violation| violation.rule == rule)
            {
                true => schedule = less,
                false => at += size,
            }
        }
        size /= 2;
    }
    schedule
}
