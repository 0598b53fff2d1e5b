//! Late calls in a real server.
//!
//! Promises: P6, P24.

use crate::eval;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw};
use tower_semaphore_model::scripts::Verb;

const KEYS: [&str; 4] = ["s{0}:held", "s{0}:queue", "s{0}:alive", "s{0}:token"];
/// The first arguments of an acquire: lease, deadline, floor, length of a grant, and one level in each claim.
const HEAD: [&str; 5] = ["60000", "9999999999999", "0", "60000", "1"];

async fn acquire(raw: &mut Raw, claims: &[[&str; 4]]) {
    let args = [&HEAD[..], &claims.concat()].concat();
    eval(raw, Verb::Acquire, &KEYS, &args).await;
}

/// The arguments of one claim of the first semaphore. The terms are a limit, or -1 if the claim was sent before, and
/// how it waits.
const fn claim<'a>(id: &'a str, terms: &'a str) -> [&'a str; 4] {
    ["1", terms, "1", id]
}

/// One call has two claims: a claim that does not wait, and the heartbeat of a waiter that is no longer alive.
#[tokio::test]
async fn a_late_heartbeat_keeps_its_position_before_an_earlier_claim_of_the_same_call() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let [held, waits] = [
        claim("a.1.0.0.1.1.1aao.0...", "1"),
        // Counts as alive for 1 ms.
        claim("b.1.0.0.1.1.1aao.0...", "1 1 9 0 0"),
    ];
    acquire(&mut raw, &[held]).await;
    acquire(&mut raw, &[waits]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    // Frees the unit. A release would also look at the queue.
    raw.cmd(&["ZREM", KEYS[0], "a.1.0.0.1.1.1aao.0..."]).await;
    acquire(&mut raw, &[claim("c.1.0.0.1.1.1aao.0...", "1"), waits]).await;
    let held = raw.zmembers(KEYS[0]).await;
    let ids: Vec<_> = held.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [b"b.1.0.0.1.1.1aao.0..."]);
}

/// The first acquire of a permit was delayed and brings the permit back. Its owner's next acquire releases it, and
/// reports that it was revoked.
#[tokio::test]
async fn nothing_is_left_of_a_permit_that_an_old_acquire_has_brought_back() {
    const ID: &str = "a.1.0.0.1.1.1aao.0...";
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (old, second) = (claim(ID, "1"), claim(ID, "-1"));
    acquire(&mut raw, &[second]).await;
    let revoke = ["0", "3600000", "1", ID];
    eval(&mut raw, Verb::Revoke, &KEYS, &revoke).await;
    for (claim, held) in [(None, 0), (Some(old), 1), (Some(second), 0)] {
        if let Some(claim) = claim {
            acquire(&mut raw, &[claim]).await;
        }
        assert_eq!(raw.zcard(KEYS[0]).await, held);
    }
}
