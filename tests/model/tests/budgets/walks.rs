//! Every state of a budget that a few clients can reach, with the shipped scripts and with planted mistakes.
//!
//! Promises: P26.

use std::env;
use tower_semaphore_model::{
    budget::{Claim, Scenario, walk},
    scripts::Scripts,
};

/// A walk ends at this number of states, unless `DEEP` is set.
const STATES: usize = 4_000;
const DEEP: usize = 100_000;

/// A claim that does not wait, and settles as it goes on.
const fn estimate(weight: i64) -> Claim {
    Claim {
        weight,
        is_rate: false,
        waits: false,
    }
}

/// A claim of one unit, which is spent when it is granted.
const RATE: Claim = Claim {
    is_rate: true,
    ..estimate(1)
};

const fn waiting(claim: Claim) -> Claim {
    Claim {
        waits: true,
        ..claim
    }
}

/// Three claims for a limit of 3, and two faults.
const IMPATIENT: Scenario = Scenario {
    claims: [estimate(2), RATE, estimate(3)],
    has_semaphore: false,
    is_provisional: false,
    faults: 2,
    has_operators: false,
    states: STATES,
};

const PATIENT: Scenario = Scenario {
    claims: [waiting(estimate(2)), waiting(RATE), waiting(estimate(3))],
    ..IMPATIENT
};

/// Each claim takes a unit of a semaphore first. It is that of a whole permit, so nothing else is lost with it.
const BEHIND_A_SEMAPHORE: Scenario = Scenario {
    has_semaphore: true,
    faults: 0,
    claims: [waiting(estimate(2)), waiting(RATE), estimate(3)],
    ..IMPATIENT
};

/// Grants are short until they are confirmed, as if each claim had levels on several servers.
const CONFIRMED: Scenario = Scenario {
    is_provisional: true,
    claims: [waiting(estimate(2)), RATE, waiting(estimate(3))],
    ..IMPATIENT
};

const WITH_OPERATORS: Scenario = Scenario {
    has_operators: true,
    faults: 1,
    claims: [waiting(estimate(2)), waiting(RATE), estimate(3)],
    ..IMPATIENT
};

fn assert_exact(mut scenario: Scenario) {
    if env::var_os("DEEP").is_some() {
        scenario.states = DEEP;
    }
    let report = walk(&scenario, &Scripts::shipped());
    println!("{} states, depth {}", report.states, report.depth);
    assert_eq!(report.fault, None);
    assert!(report.states >= scenario.states);
}

#[test]
fn no_interleaving_of_claims_that_do_not_wait_changes_the_count() {
    assert_exact(IMPATIENT);
}

#[test]
fn no_interleaving_of_claims_that_wait_changes_the_count_or_their_order() {
    assert_exact(PATIENT);
}

#[test]
fn no_interleaving_of_claims_behind_a_semaphore_leaves_a_unit_of_it_behind() {
    assert_exact(BEHIND_A_SEMAPHORE);
}

#[test]
fn no_interleaving_of_claims_that_are_confirmed_changes_the_count() {
    assert_exact(CONFIRMED);
}

#[test]
fn no_interleaving_of_pauses_and_revocations_changes_the_count() {
    assert_exact(WITH_OPERATORS);
}

/// The file of each mistake, the original, its replacement, and the scenario that finds it.
const PLANTED: [(&str, &str, &str, Scenario); 16] = [
    (
        "budget",
        "budget.spent = budget.spent + left",
        "",
        IMPATIENT,
    ),
    (
        "budget",
        "move_to(budget, tonumber(ended[at + 1]))",
        "",
        IMPATIENT,
    ),
    (
        "budget",
        "local settled = math.min(total, weight)",
        "local settled = total",
        IMPATIENT,
    ),
    ("budget", "total = math.max(total, before)", "", IMPATIENT),
    ("budget", "keep == '' or nil", "true", IMPATIENT),
    (
        "budget",
        "used_of(budget) + weight <= limit",
        "used_of(budget) + weight <= limit + 1",
        IMPATIENT,
    ),
    (
        "budget",
        "is_rate and weight or 0, is_new",
        "0, is_new",
        IMPATIENT,
    ),
    (
        "budget",
        "is_full and 0 or credit, time",
        "0, time",
        IMPATIENT,
    ),
    (
        "budget",
        "rate - 1 - budget.credit",
        "-budget.credit",
        IMPATIENT,
    ),
    (
        "budget",
        "math.max(windows, 2) * budget.window + lease * LEASES",
        "1",
        IMPATIENT,
    ),
    (
        "budget",
        "or ms and ms < (budget.due or math.huge)",
        "",
        PATIENT,
    ),
    (
        "queue",
        "recheck = soonest < math.huge and soonest or recheck",
        "",
        PATIENT,
    ),
    (
        "queue",
        "hold_up_to(levels, at - 1, at)",
        "",
        BEHIND_A_SEMAPHORE,
    ),
    (
        "budget",
        "local is_granted = ARGV[4] == ARGV[1]",
        "local is_granted = true",
        CONFIRMED,
    ),
    (
        "revoke",
        "budget and id .. ' ' .. text(tonumber(weight, 36))",
        "budget and id",
        WITH_OPERATORS,
    ),
    ("pause", "call('HDEL', token, 'pause')", "", WITH_OPERATORS),
];

#[test]
fn each_planted_mistake_in_the_scripts_of_budgets_is_found() {
    let missed: Vec<_> = PLANTED
        .into_iter()
        .filter(|(file, old, new, scenario)| {
            let scripts = Scripts::shipped().patched(file, old, new);
            walk(scenario, &scripts).fault.is_none()
        })
        .map(|(file, old, new, _)| (file, old, new))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
