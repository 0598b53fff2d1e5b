//! Many failovers under load, one after another.

use crate::{
    load::{LIMIT, Load},
    servers::Servers,
    setup::Setup,
    witness::{Seen, Witness},
};
use std::time::Duration;
use testing::{bench::run::bar, rng::Rng, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::RedisSemaphore;

/// How long claims may fail after a failover.
const BOUND: Duration = Duration::from_secs(30);

/// The number of simulated processes, each a separate store.
const PROCESSES: usize = 4;

/// Makes this many failovers. Returns the results of each.
pub(crate) async fn run(setup: Setup, failovers: usize, seed: u64) -> Vec<Seen> {
    let mut rng = Rng::new(seed);
    let mut servers = Servers::start(setup).await;
    let witness = Witness::new(LIMIT);
    let watch = witness.watch();
    let stores = stores(&servers).await;
    let mut load = Load::start(stores, &witness, setup.lease(), rng.another());
    let progress = bar(&setup.name(), failovers);
    let mut all = Vec::new();
    for _ in 0..failovers {
        servers.until_all_is_well().await;
        // The load runs for a while before the next fault.
        sleep(rng.millis(200..600)).await;
        witness.begin();
        if setup.stalls {
            servers.stall();
        }
        load.burst();
        sleep(rng.millis(setup.until_failover())).await;
        witness.promoted(servers.fail_over().await);
        servers.mend().await;
        eventually("a claim is granted", BOUND, async || {
            witness.seen().first_grant.is_some()
        })
        .await;
        // Permits are refreshed every third of a lease. 250 ms later the holders of lost permits have been notified.
        sleep(setup.lease() / 3 + Duration::from_millis(250)).await;
        all.push(witness.seen());
        progress.inc(1);
    }
    progress.finish_and_clear();
    watch.abort();
    all
}

async fn stores(servers: &Servers) -> Vec<RedisSemaphore> {
    let mut stores = Vec::new();
    for _ in 0..PROCESSES {
        stores.push(servers.connect().await);
    }
    stores
}
