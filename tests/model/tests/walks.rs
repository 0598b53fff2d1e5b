//! The scripts that ship keep every promise, in every state that the scenarios reach.

use std::env;
use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// Distinct states that all walks together have to see, nearest first, and with `DEEP` set.
const LEAST: [usize; 2] = [500_000, 1_800_000];

/// How many states end a walk, unless `DEEP` is set.
const MOST: usize = 15_000;

#[test]
fn no_interleaving_of_a_few_clients_breaks_a_promise() {
    let (mut states, is_deep) = (0, env::var_os("DEEP").is_some());
    for mut scenario in scenarios::all() {
        if !is_deep {
            scenario.states = scenario.states.min(MOST);
        }
        let report = walk(&scenario, &Scripts::shipped());
        let (name, depth) = (scenario.name, report.depth);
        println!("{name}: {} states, depth {depth}", report.states);
        if let Some(fault) = report.fault {
            panic!("{name}: {fault}");
        }
        states += report.states;
    }
    assert!(
        states >= LEAST[usize::from(is_deep)],
        "only {states} states"
    );
}
