//! Sentinels that name different primaries although they know of the same failovers: they are being set
//! up anew, one after the other.

use super::{
    minority::{connect, cut, watching},
    scripts, works,
};
use testing::redis::RedisServer;

#[tokio::test(flavor = "multi_thread")]
async fn of_sentinels_that_disagree_most_are_followed() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinels = [watching(&old, 1), watching(&new, 1), watching(&new, 1)];
    let store = connect(&sentinels).await;
    for _ in 0..30 {
        works(&store).await;
        cut(&old).await;
        cut(&new).await;
    }
    assert_eq!(scripts(&old).await, 0);
    assert!(scripts(&new).await > 0);
}
