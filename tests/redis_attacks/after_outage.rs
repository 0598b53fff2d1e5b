//! The first moments after an outage.

use crate::support::{
    proxy::{End, Proxy},
    redis::RedisServer,
};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

/// So long that the pauses between two tries of a release have grown to their longest.
const OUTAGE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 2;

/// How long claims are told that the limit is reached after an outage in which the only permit was
/// dropped.
async fn refused_for() -> Duration {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    // A busy machine may need a while for a new connection.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let claim = || store.acquire(Claim::new("ann").with_limit(1));
    let permit = claim().await.expect("there is room");
    proxy.refuse().await;
    proxy.kill(End::Reset);
    drop(permit);
    sleep(OUTAGE).await;
    proxy.accept().await;
    let (start, mut refused) = (Instant::now(), Duration::ZERO);
    loop {
        match claim().await {
            Ok(_) => return refused,
            Err(AcquireError::Full { .. }) => refused = start.elapsed(),
            Err(_) => {}
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_no_claim_is_refused_while_nobody_holds() {
    // When the release is due again depends on the round.
    let rounds = (0..ROUNDS).map(|_| refused_for());
    let refused = futures_util::future::join_all(rounds).await;
    assert_eq!(refused, [Duration::ZERO; ROUNDS]);
}
