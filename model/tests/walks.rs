//! The scripts that ship keep every promise, in every state that the scenarios reach.

use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// Distinct states that all walks together have to see.
const LEAST: usize = 1_800_000;

#[test]
fn no_interleaving_of_a_few_clients_breaks_a_promise() {
    let mut states = 0;
    for scenario in scenarios::all() {
        let report = walk(&scenario, &Scripts::shipped());
        let (name, depth) = (scenario.name, report.depth);
        println!("{name}: {} states, depth {depth}", report.states);
        if let Some(fault) = report.fault {
            panic!("{name}: {fault}");
        }
        states += report.states;
    }
    assert!(states >= LEAST, "only {states} states");
}
