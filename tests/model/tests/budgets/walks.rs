//! Every state of a budget that three clients can reach within 4 steps, or within 6 if nothing goes wrong, and random walks
//! of 60 steps: with the shipped scripts, and with planted mistakes.
//!
//! Promises: P26.

use std::env;
use testing::rng::Rng;
use tower_semaphore_model::{
    budget::{Claim, Fault, Report, Scenario, walk, wander},
    scripts::Scripts,
};

/// The number of random walks, and the number of steps of each.
const WALKS: usize = 300;
const LENGTH: usize = 60;

/// Each walk must see at least this number of distinct states.
const LEAST: usize = 800;

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
    depth: 4,
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
    claims: [waiting(estimate(2)), RATE, waiting(estimate(2))],
    ..IMPATIENT
};

const WITH_OPERATORS: Scenario = Scenario {
    has_operators: true,
    faults: 1,
    claims: [waiting(estimate(2)), waiting(RATE), estimate(3)],
    ..IMPATIENT
};

/// The same scenario without faults. They are half of all steps, so it goes two steps farther.
fn without_faults(scenario: &Scenario) -> Scenario {
    Scenario {
        faults: 0,
        depth: scenario.depth + 2,
        ..scenario.clone()
    }
}

/// Takes random walks, and then visits every state within the scenario's number of steps, with and without its faults.
fn find_fault(scenario: &Scenario, scripts: &Scripts) -> Report {
    let mut rng = Rng::new(1);
    let mut report = wander(scenario, scripts, WALKS, LENGTH, |end| rng.below(end));
    let scenarios = [scenario.clone(), without_faults(scenario)];
    // The longer walk has all states of the shorter one if neither has faults.
    for scenario in &scenarios[usize::from(scenario.faults == 0)..] {
        if report.fault.is_none() {
            report = walk(scenario, scripts);
            let (states, Scenario { depth, faults, .. }) = (report.states, scenario);
            println!("{states} states within {depth} steps, {faults} faults");
        }
    }
    report
}

/// With `DEEP` set, goes two steps farther.
fn assert_exact(mut scenario: Scenario) {
    if env::var_os("DEEP").is_some() {
        scenario.depth += 2;
    }
    let report = find_fault(&scenario, &Scripts::shipped());
    assert_eq!(report.fault, None, "after {:#?}", report.steps);
    assert!(report.states >= LEAST, "only {} states", report.states);
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
const PLANTED: [(&str, &str, &str, Scenario); 27] = [
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
    (
        "refresh_budgets",
        "(is_held or not is_provisional and not is_revoked(budget, id)) and 1 or 0",
        "0",
        IMPATIENT,
    ),
    (
        "refresh_budgets",
        "and not is_revoked(budget, id)",
        "",
        WITH_OPERATORS,
    ),
    (
        "release",
        "answer[#answer + 1] = release_reservation(",
        "release_reservation(",
        IMPATIENT,
    ),
    (
        "budget",
        "call('ZADD', budget.held, 'GT', expires_at, id)",
        "call('ZADD', budget.held, expires_at, id)",
        CONFIRMED,
    ),
    (
        "budget",
        "call_for_all('HDEL', budget.hash, fields) call_for_all('ZREM', budget.held, members)",
        "call_for_all('ZREM', budget.held, members)",
        IMPATIENT,
    ),
    (
        "revoke",
        "was_there = was_there or is_reserved(budget, id, now)",
        "was_there = true",
        WITH_OPERATORS,
    ),
    (
        "revoke",
        "notify(held, process, permit .. ' revoked')",
        "",
        WITH_OPERATORS,
    ),
    (
        "queue",
        "recheck = soonest < math.huge and soonest or recheck",
        "recheck = 0",
        PATIENT,
    ),
    (
        "queue",
        "math.min(budget.due or math.huge, ends)",
        "budget.due or ends",
        CONFIRMED,
    ),
    (
        "queue",
        "local is_next = not head or",
        "local is_next = not head and not string.find(level.terms, ' [1-9]%d* %d+$') or",
        PATIENT,
    ),
    // Only random walks find it.
    (
        "queue",
        "elseif arrival == 0 then",
        "elseif true then",
        PATIENT,
    ),
];

#[test]
fn each_planted_mistake_in_the_scripts_of_budgets_is_found() {
    let missed = PLANTED.iter().filter(|(file, old, new, scenario)| {
        let scripts = Scripts::shipped().patched(file, old, new);
        let report = find_fault(scenario, &scripts);
        println!(
            "{file} {old:?} {new:?}: {:?} {}",
            report.fault,
            report.steps.join(" ")
        );
        // A script that fails shows nothing about the checks.
        !matches!(report.fault, Some(Fault::Difference(_)))
    });
    let missed: Vec<_> = missed.map(|(file, old, new, _)| (file, old, new)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
