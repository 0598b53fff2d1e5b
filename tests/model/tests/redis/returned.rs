//! An acquire that comes after the permit was granted by another one, and revoked, in a real server.

use crate::eval;
use testing::{redis::RedisServer, resp::Raw};
use tower_semaphore_model::scripts::Verb;

/// The first acquire of a permit was delayed, and brings the permit back. Its owner releases it with its next
/// acquire, which says that it was revoked.
#[tokio::test]
async fn nothing_is_left_of_a_permit_that_an_old_acquire_has_brought_back() {
    const KEYS: [&str; 4] = ["s{0}:held", "s{0}:queue", "s{0}:alive", "s{0}:token"];
    const END: &str = "9999999999999";
    const ID: &str = "a.1.1.1.60000.0";
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let claim = |limit| ["60000", END, "0", "60000", "1", "1", ID, limit, ""];
    let (old, second) = (claim("1"), claim("-1"));
    eval(&mut raw, Verb::Acquire, &KEYS, &second).await;
    let revoke = ["0", "3600000", "1", ID];
    eval(&mut raw, Verb::Revoke, &KEYS, &revoke).await;
    assert_eq!(raw.zcard(KEYS[0]).await, 0);
    eval(&mut raw, Verb::Acquire, &KEYS, &old).await;
    assert_eq!(raw.zcard(KEYS[0]).await, 1);
    eval(&mut raw, Verb::Acquire, &KEYS, &second).await;
    assert_eq!(raw.zcard(KEYS[0]).await, 0);
}
