//! The calls of a walk: their keys, the ids that they name, and their arguments.

use super::{
    clients::{Claim, Kind, Request},
    walk::Scenario,
};
use crate::{
    scripts::Verb,
    time::{ALIVE, LEASE, TICK},
    unit::base36,
};

/// The window of the budget, in ms.
pub(super) const WINDOW: i64 = 4 * TICK;

/// The limit of the budget.
pub(super) const LIMIT: i64 = 3;

/// The limit of the semaphore. It is never full.
const UNITS: i64 = 9;

/// How long a grant lasts that is not confirmed, in ms.
const PROVISIONAL: i64 = 2 * TICK;

/// The keys of the semaphore: `held`, `queue`, `alive` and `token`.
pub(super) const SEMAPHORE: [&str; 4] = ["s:{b}:held", "s:{b}:queue", "s:{b}:alive", "s:{b}:token"];

/// The keys of the budget: `held`, `queue`, `alive` and `budget`.
pub(super) const BUDGET: [&str; 4] = [
    "s:{b}400:held",
    "s:{b}400:queue",
    "s:{b}400:alive",
    "s:{b}:budget",
];

/// The keys of the windows that are not in use.
pub(super) const UNUSED: [&str; 4] = [
    "s:{b}0:held",
    "s:{b}0:queue",
    "s:{b}0:alive",
    "s:{b}:budget",
];

/// How long a grant lasts, in ms.
pub(super) fn lasts(scenario: &Scenario) -> i64 {
    if scenario.is_provisional {
        PROVISIONAL
    } else {
        LEASE
    }
}

/// The number of levels of each claim.
pub(super) fn levels(scenario: &Scenario) -> i64 {
    if scenario.has_semaphore { 2 } else { 1 }
}

/// The id of a client's reservation.
pub(super) fn id(at: usize, scenario: &Scenario) -> String {
    let weight = scenario.claims[at].weight;
    format!("p{at}.2.0.0.{LIMIT}.{weight}.{}.0...", base36(LEASE as u32))
}

/// The id of a client's unit of the semaphore.
fn unit(at: usize) -> String {
    format!("p{at}.1.0.0.{UNITS}.1.{}.0...", base36(LEASE as u32))
}

/// The channel of a client's process.
pub(super) fn channel(at: usize) -> String {
    format!("s:wake:p{at}")
}

pub(super) fn keys(scenario: &Scenario) -> Vec<String> {
    let semaphore = SEMAPHORE.iter().filter(|_| scenario.has_semaphore);
    let keys = semaphore.chain(&BUDGET);
    keys.map(|key| (*key).to_owned()).collect()
}

/// The script that runs a request, and its arguments.
pub(super) fn args(at: usize, request: &Request, scenario: &Scenario) -> (Verb, Vec<String>) {
    match request.kind {
        Kind::Acquire => (Verb::AcquireBudgets, acquire_args(at, request, scenario)),
        Kind::Refresh(total) => {
            let mut args = vec![LEASE.to_string()];
            args.extend(units(at, scenario, &format!(" {total}")));
            (Verb::RefreshBudgets, args)
        }
        Kind::Release(total) => {
            let keep = if request.keeps { " keep" } else { "" };
            // An answer is wanted; the floor.
            let mut args = vec!["1".to_owned(), "5".to_owned()];
            args.extend(units(at, scenario, &format!(" {total}{keep}")));
            (Verb::ReleaseBudgets, args)
        }
    }
}

/// For each level the number of ids and the id. That of the budget ends with what is settled.
fn units(at: usize, scenario: &Scenario, settled: &str) -> Vec<String> {
    let unit = scenario.has_semaphore.then(|| unit(at));
    let ids = unit.into_iter().chain([id(at, scenario) + settled]);
    ids.flat_map(|id| ["1".to_owned(), id]).collect()
}

fn acquire_args(at: usize, request: &Request, scenario: &Scenario) -> Vec<String> {
    let (claim, levels) = (scenario.claims[at], levels(scenario));
    // Lease, deadline, floor, length of the grant, levels of each claim, and claims.
    let numbers = [LEASE, request.deadline(), 1_000, lasts(scenario), levels, 1];
    let mut args: Vec<_> = numbers.iter().map(i64::to_string).collect();
    if scenario.has_semaphore {
        args.push(terms(claim, request, UNITS, "", 0));
    }
    let rate = if claim.is_rate { " rate" } else { "" };
    args.push(terms(claim, request, LIMIT, rate, request.arrival));
    if scenario.has_semaphore {
        args.extend(["1".to_owned(), unit(at)]);
    }
    args.extend([levels.to_string(), id(at, scenario)]);
    args
}

/// The terms of a claim at one level.
fn terms(claim: Claim, request: &Request, limit: i64, rate: &str, arrival: i64) -> String {
    let limit = if request.was_sent { -1 } else { limit };
    if claim.waits {
        format!("{limit}{rate} {ALIVE} 9 {arrival} 0")
    } else {
        format!("{limit}{rate}")
    }
}
