//! The shipped scripts keep every promise in every state that the scenarios reach.
//!
//! Promises: P1, P2, P3, P5, P6, P8, P10, P12, P13, P14, P15, P16, P17, P24.

use std::env;
use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// Each walk must see at least this number of distinct states.
const LEAST: usize = 1_000;

/// A walk ends at this number of states, unless `DEEP` is set.
const MOST: usize = 6_000;

/// The number of tests that share the scenarios, so that no test takes long.
const PARTS: usize = 24;

/// Walks every 24th scenario, from number `part` on.
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

// Each test shows that no interleaving of a few clients breaks a promise.
parts! {
    no_interleaving_breaks_a_promise_in_scenario_1_and_every_twenty_fourth_after_it: 0
    no_interleaving_breaks_a_promise_in_scenario_2_and_every_twenty_fourth_after_it: 1
    no_interleaving_breaks_a_promise_in_scenario_3_and_every_twenty_fourth_after_it: 2
    no_interleaving_breaks_a_promise_in_scenario_4_and_every_twenty_fourth_after_it: 3
    no_interleaving_breaks_a_promise_in_scenario_5_and_every_twenty_fourth_after_it: 4
    no_interleaving_breaks_a_promise_in_scenario_6_and_every_twenty_fourth_after_it: 5
    no_interleaving_breaks_a_promise_in_scenario_7_and_every_twenty_fourth_after_it: 6
    no_interleaving_breaks_a_promise_in_scenario_8_and_every_twenty_fourth_after_it: 7
    no_interleaving_breaks_a_promise_in_scenario_9_and_every_twenty_fourth_after_it: 8
    no_interleaving_breaks_a_promise_in_scenario_10_and_every_twenty_fourth_after_it: 9
    no_interleaving_breaks_a_promise_in_scenario_11_and_every_twenty_fourth_after_it: 10
    no_interleaving_breaks_a_promise_in_scenario_12_and_every_twenty_fourth_after_it: 11
    no_interleaving_breaks_a_promise_in_scenario_13_and_every_twenty_fourth_after_it: 12
    no_interleaving_breaks_a_promise_in_scenario_14_and_every_twenty_fourth_after_it: 13
    no_interleaving_breaks_a_promise_in_scenario_15_and_every_twenty_fourth_after_it: 14
    no_interleaving_breaks_a_promise_in_scenario_16_and_every_twenty_fourth_after_it: 15
    no_interleaving_breaks_a_promise_in_scenario_17_and_every_twenty_fourth_after_it: 16
    no_interleaving_breaks_a_promise_in_scenario_18_and_every_twenty_fourth_after_it: 17
    no_interleaving_breaks_a_promise_in_scenario_19_and_every_twenty_fourth_after_it: 18
    no_interleaving_breaks_a_promise_in_scenario_20_and_every_twenty_fourth_after_it: 19
    no_interleaving_breaks_a_promise_in_scenario_21_and_every_twenty_fourth_after_it: 20
    no_interleaving_breaks_a_promise_in_scenario_22_and_every_twenty_fourth_after_it: 21
    no_interleaving_breaks_a_promise_in_scenario_23_and_every_twenty_fourth_after_it: 22
    no_interleaving_breaks_a_promise_in_scenario_24_and_every_twenty_fourth_after_it: 23
}
