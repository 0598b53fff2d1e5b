//! The model has the scripts that the crate sends.
//!
//! Promises: none.

use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Operate, Policy, RedisSemaphore, Semaphore};
use tower_semaphore_model::scripts::Scripts;

/// The number of scripts: three for semaphores, three for budgets, four for operators, one for the presence of a
/// process, and the check of a server, which is not in the model.
const SENT: i64 = 12;

/// The server knows exactly these scripts, and loading the model's scripts adds none.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_has_the_scripts_that_the_crate_sends() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let lease = Duration::from_secs(1);
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("the server is there");
    let one = store.acquire(Claim::new("one").with_limit(1)).await;
    let both = [Claim::new("narrow"), Claim::new("wide")].map(|claim| claim.with_limit(1));
    let both = store.acquire_all(both.into()).await.expect("there is room");
    let budget = Claim::new("budget").with_limit(1).with_window(lease);
    let budget = store.acquire(budget).await.expect("there is room");
    // Six scripts are sent later: four for operators, and two releases.
    let refreshed =
        async || known_scripts(&mut Raw::connect(server.port()).await).await >= SENT - 6;
    eventually("it is refreshed", Duration::from_secs(20), refreshed).await;
    let (policy, key) = (Policy::DEFAULT, "one".into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it answers"));
    let set = store.set_limit(&policy, None, Some(3), "").await;
    set.expect("it answers");
    let paused = store.pause(&policy, &key, lease, "").await;
    paused.expect("it answers");
    both.release().await;
    budget.release().await;
    one.expect("there is room").release().await;
    assert_eq!(known_scripts(&mut raw).await, SENT);
    for script in Scripts::shipped().all() {
        raw.cmd(&["SCRIPT", "LOAD", &script]).await;
    }
    assert_eq!(known_scripts(&mut raw).await, SENT);
}

async fn known_scripts(raw: &mut Raw) -> i64 {
    let info = raw.cmd(&["INFO", "memory"]).await;
    let line = |line: &str| line.strip_prefix("number_of_cached_scripts:")?.parse().ok();
    info.text()
        .lines()
        .find_map(line)
        .expect("the server reports it")
}
