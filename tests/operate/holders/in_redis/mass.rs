//! Very many permits of one process that are revoked together.

use super::{claim, first, listens, started, store};
use futures_util::{StreamExt, stream};
use std::time::Duration;
use testing::wait::eventually;
use tower_semaphore::{Permit, RedisSemaphore, Semaphore};

const PERMITS: u32 = 10_000;
const MESSAGES: u32 = 20_000;
/// No refresh is due in this time, so only a message can tell.
const LONG: Duration = Duration::from_secs(1_000);

async fn permits(store: &RedisSemaphore) -> Vec<Permit> {
    let claims = (0..PERMITS).map(|_| store.acquire(claim(1).with_limit(PERMITS)));
    let granted = stream::iter(claims).buffer_unordered(500);
    let granted = granted.map(|permit| permit.expect("there is room"));
    granted.collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_many_permits_is_told_soon_however_many_are_revoked() {
    let (server, mut raw) = started().await;
    let holder = store(&server.url(), LONG).await;
    let permits = permits(&holder).await;
    let info = first(&holder).await;
    listens(&mut raw, &info.process.id).await;
    let channel = format!("semaphore:wake:{}", info.process.id);
    for unknown in 0..MESSAGES {
        let message = format!("{:x} revoked", 0xffff_0000_u32 + unknown);
        raw.send(&["PUBLISH", &channel, &message])
            .await
            .expect("it is sent");
    }
    let serial = info.id.split('.').nth(1).expect("it has one");
    raw.send(&["PUBLISH", &channel, &format!("{serial} revoked")])
        .await
        .expect("it is sent");
    // Alone it takes a second or two.
    eventually("it is told", Duration::from_secs(60), async || {
        permits.iter().any(Permit::is_lost)
    })
    .await;
    assert_eq!(permits.iter().filter(|permit| permit.is_lost()).count(), 1);
}
