//! Three markets on one Redis, at work while processes, connections and Redis fail at random.
//!
//! `tests/soak.sh MINUTES` runs it, and `SOAK_SEED=0x… tests/soak.sh MINUTES` repeats its random
//! choices. What is judged, and by whom:
//!
//! - `books/`: what Redis does, as `MONITOR` shows it: the limits, the order of the queues, and that
//!   permits end by a release.
//! - `in_flight.rs`: how many responses the clients themselves have in flight.
//! - `market/conservation`: coins and items, and every answer that a trader got.
//! - `residue.rs`: what is left in the end, and `figures.rs`: memory and descriptors.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod books;
mod client;
mod doors;
mod faults;
mod figures;
mod fixture;
mod fleet;
mod in_flight;
#[path = "../market/conservation/judge.rs"]
mod judge;
mod plan;
mod process;
mod process_faults;
mod redis_faults;
mod report;
mod residue;
mod run;
mod streams;
#[path = "../market/conservation/traders.rs"]
mod traders;
mod troubles;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/soak.sh runs it"]
async fn a_fleet_keeps_its_promises_whatever_happens_to_it() {
    run::soak().await;
}
