//! A permit that was lost and granted again, but the answer that said so did not arrive.

use crate::common::{BOUND, HELD, ended, live, permit, store};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::Permit;

const LEASE: Duration = Duration::from_millis(1_500);

/// The hash of the script that acquires: of the first call for the permit's key.
fn acquire(proxy: &Proxy) -> Vec<u8> {
    let log = proxy.log();
    let is_for_the_key = |args: &[Vec<u8>]| args.iter().any(|arg| arg == HELD.as_bytes());
    let mut calls = log.iter().filter(|seen| seen.args[0] == b"EVALSHA");
    let call = calls.find(|seen| is_for_the_key(&seen.args));
    call.expect("there was a call").args[1].clone()
}

/// From now on two answers to acquires are lost: the try, and the one after the cut. Returns how
/// many have been so far.
fn lose_answers_to_acquires(proxy: &Proxy, acquire: Vec<u8>) -> Arc<AtomicUsize> {
    let lost = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&lost);
    proxy.drop_replies_to(2, move |args| {
        let hit = args.get(1).is_some_and(|hash| *hash == acquire);
        count.fetch_add(usize::from(hit), Ordering::SeqCst);
        hit
    });
    lost
}

/// Asserts that the permit, whenever it is not lost, has a new token.
async fn is_held_under_more_than(newest: Option<u64>, permit: &Permit) {
    let start = Instant::now();
    while start.elapsed() < LEASE * 2 {
        let (token, lost) = (permit.token(), permit.is_lost());
        assert!(lost || token > newest, "held as {token:?} after {newest:?}");
        tokio::time::sleep(LEASE / 100).await;
    }
    assert!(!permit.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_granted_again_has_a_token_greater_than_every_earlier_one() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let (ours, other) = (
        store(proxy.url(), LEASE).await,
        store(server.url(), LEASE).await,
    );
    // The first call of a script has its text, and later ones its hash.
    assert!(permit(&ours, 1).await.release().await);
    let ours = permit(&ours, 1).await;
    let acquire = acquire(&proxy);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", HELD]).await;
    let successor = permit(&other, 1).await;
    let newest = successor.token();
    ended("the holder learns of the loss", ours.lost()).await;

    let lost = lose_answers_to_acquires(&proxy, acquire);
    assert!(successor.release().await);
    eventually("it was granted again unheard", BOUND, async || {
        lost.load(Ordering::SeqCst) > 0 && live(&mut raw).await == 1
    })
    .await;
    eventually("its holder knows", BOUND, async || !ours.is_lost()).await;
    is_held_under_more_than(newest, &ours).await;
}
