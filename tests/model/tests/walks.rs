//! The scripts that ship keep every promise, in every state that the scenarios reach.

use std::env;
use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// Distinct states that each walk has to see.
const LEAST: usize = 1_500;

/// How many states end a walk, unless `DEEP` is set.
const MOST: usize = 15_000;

/// How many tests share the scenarios, so that none takes long.
const PARTS: usize = 6;

/// Walks every scenario of a part.
fn walk_part(part: usize) {
    let is_deep = env::var_os("DEEP").is_some();
    for mut scenario in scenarios::all().skip(part).step_by(PARTS) {
        if !is_deep {
            scenario.states = scenario.states.min(MOST);
        }
        let report = walk(&scenario, &Scripts::shipped());
        let (name, states, depth) = (scenario.name, report.states, report.depth);
        println!("{name}: {states} states, depth {depth}");
        if let Some(fault) = report.fault {
            panic!("{name}: {fault}");
        }
        assert!(states >= LEAST, "{name}: only {states} states");
    }
}

macro_rules! parts {
    ($($name:ident: $part:literal)*) => { $(
        #[test]
        fn $name() {
            walk_part($part);
        }
    )* };
}

// Each: no interleaving of a few clients breaks a promise.
parts! {
    no_interleaving_breaks_a_promise_in_scenarios_1_7_and_so_on: 0
    no_interleaving_breaks_a_promise_in_scenarios_2_8_and_so_on: 1
    no_interleaving_breaks_a_promise_in_scenarios_3_9_and_so_on: 2
    no_interleaving_breaks_a_promise_in_scenarios_4_10_and_so_on: 3
    no_interleaving_breaks_a_promise_in_scenarios_5_11_and_so_on: 4
    no_interleaving_breaks_a_promise_in_scenarios_6_12_and_so_on: 5
}
