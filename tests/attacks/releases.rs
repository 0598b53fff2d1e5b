//! Many releases before the one that a claim waits for.

use futures_util::future::join_all;
use std::time::Duration;
use testing::{machine::alone, redis::RedisServer};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// So many units, in heavy permits, that the server needs longer than a claim's budget for them.
const HEAVY: usize = 1_000;
const WEIGHT: u32 = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_million_released_units_refuse_no_claim_whose_permit_was_released_too() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    // A busy machine is no failure of the store.
    let builder = builder.timeout(Duration::from_secs(1));
    let store = builder.connect(server.url()).await.expect("it connects");
    let claim = |key: String, weight| {
        let claim = Claim::new(key).with_limit(weight).with_weight(weight);
        store.acquire(claim)
    };
    let (mut heavy, mut number) = (Vec::new(), 0);
    while heavy.len() < HEAVY {
        let claims = (0..4).map(|_| {
            number += 1;
            claim(format!("heavy-{number}"), WEIGHT)
        });
        // On a busy machine some fail.
        heavy.extend(join_all(claims).await.into_iter().flatten());
    }
    let light = claim("light".into(), 1).await.expect("there is room");
    drop(heavy);
    drop(light);
    let answer = claim("light".into(), 1).await;
    assert!(answer.is_ok(), "{answer:?}");
}
