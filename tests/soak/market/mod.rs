//! Three markets on one Redis, under load while processes, connections and Redis fail at random.
//!
//! `tests/soak.sh MINUTES` runs it, and `SOAK_SEED=0x… tests/soak.sh MINUTES` repeats its random choices. Each module
//! judges a part:
//!
//! - `witness.rs`: the commands that Redis runs, as `MONITOR` shows them. It checks the limits, the order of the
//!   queues, and that permits end by a release.
//! - `in_flight.rs`: the number of responses in flight, as the clients see them.
//! - `market/conservation`: coins and items, and every answer that a trader got.
//! - `residue.rs`: the state at the end. `figures.rs`: memory and descriptors.
//!
//! | promise | judged by |
//! |---|---|
//! | never more unexpired units of a key than its limit | `MONITOR`, replayed by a model of leases |
//! | only the head of a queue is granted, and no claim passes it | the same |
//! | a permit ends with its lease only if its process or Redis had a fault in the two leases before | the same, and the log of faults |
//! | never more responses in flight than the limit, apart from those that a fault may have displaced | the clients |
//! | no coin or item is lost, made or doubled; every answer was true | the market's keys in Redis |
//! | only 200, 201, 4xx and 503; no answer missing; no connection broken without a reason | the clients |
//! | in the end nothing is held or queued, and the whole limit can be had | raw RESP, the clients |
//! | memory and descriptors are flat; no process ends or panics by itself | `/proc`, the processes' logs |
//!
//! Promises: P1, P4, P8, P9, P10, P12, P18.

mod client;
mod faults;
mod figures;
mod fixture;
mod fleet;
mod in_flight;
#[path = "../../market/conservation/judge.rs"]
mod judge;
mod model;
mod plan;
mod report;
mod residue;
mod run;
mod streams;
#[path = "../../market/conservation/traders.rs"]
mod traders;
mod witness;

use client::Processes;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/soak.sh runs it"]
async fn a_fleet_keeps_its_promises_whatever_happens_to_it() {
    run::soak().await;
}
