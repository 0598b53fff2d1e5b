//! The number of permits beyond the limit that are in flight after a failover to a replica that lacks the last grants.
//!
//! `cargo bench -p tower-semaphore-benches --bench failover` makes 20 failovers for each setup. `-- --failovers 200`
//! makes more, `--way TEXT` selects the setups whose name contains this text, and `--seed NUMBER` gives other random
//! times. `--price` instead measures the cost of waiting until a replica has each grant.

mod cluster;
mod load;
mod node;
mod plain;
mod price;
mod report;
mod run;
mod sentinel;
mod servers;
mod setup;
mod witness;

use setup::Setup;
use std::env;

/// The number of failovers per setup, by default.
const FAILOVERS: usize = 20;

/// The value after a flag, if the flag was given.
fn flag(name: &str) -> Option<String> {
    let mut args = env::args().skip_while(|arg| arg != name);
    args.nth(1)
}

#[tokio::main]
async fn main() {
    if env::args().any(|arg| arg == "--price") {
        return price::compare().await;
    }
    let failovers = flag("--failovers").and_then(|count| count.parse().ok());
    let failovers = failovers.unwrap_or(FAILOVERS);
    let seed = flag("--seed")
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let wanted = flag("--way").unwrap_or_default();
    let mut report = report::Report::new();
    for setup in Setup::all() {
        if setup.name().contains(&wanted) {
            report.add(setup, &run::run(setup, failovers, seed).await);
        }
    }
    println!("{report}");
}
