//! Claims that are refused before anything is sent.

use std::time::Duration;
use testing::rig::Rig;
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_overload_sends_nothing_to_the_server() {
    let builder = RedisSemaphore::builder().max_waiting_total(0);
    let rig = Rig::new(builder).await;
    rig.proxy.clear_log();
    for _ in 0..1_000 {
        let claim = Claim::new("crowded").with_limit(1);
        let answer = rig
            .store
            .acquire(claim.with_wait(Duration::from_secs(1)))
            .await;
        assert!(
            matches!(answer, Err(AcquireError::Overloaded)),
            "{answer:?}"
        );
    }
    // Anything sent for the refused claim would travel with the other's release, or before it.
    let other = rig.store.acquire(Claim::new("other").with_limit(1)).await;
    assert!(other.expect("there is room").release().await);
    let about = |key: &str| {
        let key = key.as_bytes();
        let names = |arg: &Vec<u8>| arg.windows(key.len()).any(|bytes| bytes == key);
        let log = rig.proxy.log();
        log.iter()
            .filter(|seen| seen.args.iter().any(names))
            .count()
    };
    assert!(about("other") >= 2, "the log is of another server");
    assert_eq!(about("crowded"), 0, "commands for claims that were refused");
}
