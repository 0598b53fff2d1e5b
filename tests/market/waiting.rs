//! A request without a free permit waits for one, if the settings say so.

use crate::{
    permits::{ENDLESS, streams},
    process::Market,
};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_millis(500);
const SETTINGS: [(&str, &str); 2] = [("LIMIT", "2"), ("WAIT_MS", "500")];

/// A request without room is refused when its wait is over; another gets the permit that is
/// released meanwhile, in whichever process.
async fn waits(here: &Market, there: &Market) {
    let ann = here.client("ann");
    let mut held = streams(&ann, 1).await;
    held.extend(streams(&there.client("ann"), 1).await);
    let start = Instant::now();
    let refused = ann.get(ENDLESS).await;
    let waited = start.elapsed();
    assert_eq!(refused.status(), 429);
    assert!(
        (WAIT..WAIT * 4).contains(&waited),
        "refused after {waited:?}"
    );

    let waiting = tokio::spawn(async move { ann.get("/market").await.status() });
    held.pop();
    assert_eq!(waiting.await.expect("it was answered"), 200);
}

#[tokio::test]
async fn a_request_waits_for_a_permit_in_its_process() {
    let market = Market::start(&SETTINGS).await;
    waits(&market, &market).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_request_waits_for_a_permit_that_another_process_releases() {
    let server = testing::redis::RedisServer::start();
    let url = server.url();
    let settings = [&SETTINGS[..], &[("REDIS_URL", &*url)]].concat();
    waits(
        &Market::start(&settings).await,
        &Market::start(&settings).await,
    )
    .await;
}
