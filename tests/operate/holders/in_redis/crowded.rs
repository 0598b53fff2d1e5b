//! Many concurrent calls of operators. A store runs 32 of them at a time, and the others wait their turn.
//!
//! Promises: P24.

use super::LONG;
use crate::holders::{BOUND, Store, revoke};
use futures_util::{FutureExt, future::join_all};
use std::{sync::Arc, time::Duration};
use testing::{ids::id, proxy::Proxy, redis::RedisServer, wait::one_round_passes};
use tokio::time::{Instant, timeout};
use tower_semaphore::{Operate, Policy, RedisSemaphore};

const AT_ONCE: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(2);
/// The delay of an answer.
const DELAY: Duration = Duration::from_millis(200);

/// A store whose answers are delayed, and whose server has the script loaded.
async fn delayed() -> (RedisServer, Proxy, Store) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LONG).timeout(TIMEOUT);
    let store = builder.connect(proxy.url()).await;
    let store: Store = Arc::new(store.expect("it connects"));
    assert!(!revoke(&store, "a", &unknown(0)).await);
    proxy.clear_log();
    proxy.delay(Duration::ZERO, DELAY);
    (server, proxy, store)
}

/// The id of a permit that does not exist.
fn unknown(permit: usize) -> String {
    // The limit, the weight, and the lease in milliseconds.
    id("aaaa", permit as u64, [9, 1, 2_000])
}

/// Makes many calls at once, and returns the times at which the proxy saw them.
async fn send_times_of_a_crowd() -> Vec<Instant> {
    // The last calls wait for longer than two timeouts.
    const CALLS: usize = 22 * AT_ONCE;
    let (_server, proxy, store) = delayed().await;
    let ids: Vec<_> = (1..=CALLS).map(unknown).collect();
    let revoked = join_all(ids.iter().map(|id| revoke(&store, "a", id))).await;
    assert_eq!(revoked, [false; CALLS]);
    let mut sent = proxy.log();
    sent.retain(|seen| seen.args.iter().any(|arg| arg.starts_with(b"aaaa.")));
    assert_eq!(sent.len(), CALLS);
    sent.iter().map(|seen| seen.at).collect()
}

/// No call ends earlier than `DELAY` after it was sent, so any call and the 32nd after it are sent at least `DELAY`
/// apart. A round may fail on a busy machine: the proxy may see a call late, and a waiting call is sent anyway once no
/// call has ended for a second, because the calls before it may not be polled any more.
#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_their_turn_for_longer_than_the_timeout_and_succeed() {
    let round = async || {
        let sent = send_times_of_a_crowd().await;
        let pairs = sent.iter().zip(&sent[AT_ONCE..]);
        let apart = pairs.map(|(earlier, later)| *later - *earlier).min();
        let apart = apart.expect("there are more calls than may run at once");
        (apart >= DELAY).then_some(()).ok_or(apart)
    };
    one_round_passes("no more calls than may run at once are in flight", 6, round).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_not_polled_any_more_hold_up_no_others() {
    let (_server, _proxy, store) = delayed().await;
    let ids = (1..=2 * AT_ONCE).map(unknown);
    let mut calls: Vec<_> = ids
        .map(|id| store.revoke(&Policy::DEFAULT, &"a".into(), &id))
        .collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    let other = timeout(BOUND, revoke(&store, "a", &unknown(0))).await;
    assert_eq!(other, Ok(false));
}
