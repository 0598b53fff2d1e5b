//! A gateway that restarts: the commands ran, their replies are lost, and for a while nothing
//! answers.

use futures_util::future::join_all;
use std::time::Duration;
use testing::proxy::End;
use testing::rig::{Rig, until_at_least};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// Long enough that no lease ends during a test.
const LEASE: Duration = Duration::from_secs(10);
/// So long that nothing but the cut ends a call.
/// As many are in flight at once, alone and in batches.
const FIRST: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(2);
/// Much less than a lease.
const SOON: Duration = Duration::from_secs(3);
const RESTART: Duration = Duration::from_millis(300);

async fn rig() -> Rig {
    Rig::new(RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT)).await
}

/// Claims whose acquires run, but whose connections end before the replies and stay refused.
async fn cut_off(rig: &mut Rig, claims: Vec<Claim>) -> Vec<Result<Permit, AcquireError>> {
    let units = claims.iter().map(Claim::weight).sum::<u32>() as usize;
    rig.proxy.refuse().await;
    rig.proxy.mute();
    let acquires = claims.into_iter().map(|claim| rig.store.acquire(claim));
    let answers = tokio::spawn(join_all(acquires));
    // Not all need to have run: without replies no more are sent than may be in flight.
    until_at_least(&mut rig.raw, units.min(FIRST)).await;
    rig.proxy.kill(End::Reset);
    let answers = answers.await.expect("it did not panic");
    tokio::time::sleep(RESTART).await;
    rig.proxy.forward();
    rig.proxy.accept().await;
    answers
}

fn all_failed(answers: &[Result<Permit, AcquireError>]) {
    let failed = |answer: &Result<_, _>| matches!(answer, Err(AcquireError::Store { .. }));
    assert!(answers.iter().all(failed), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_ran_and_was_cut_off_from_the_server_holds_nothing_soon() {
    let mut rig = rig().await;
    let answers = cut_off(&mut rig, vec![Claim::new("a").with_limit(1)]).await;
    all_failed(&answers);
    rig.nothing_is_left(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_ran_and_were_cut_off_from_the_server_hold_nothing_soon() {
    let mut rig = rig().await;
    let claims = (0..200_u64).map(|key| Claim::new(key % 20).with_limit(10));
    let answers = cut_off(&mut rig, claims.collect()).await;
    all_failed(&answers);
    rig.nothing_is_left(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_claim_that_was_cut_off_is_free_for_others_soon() {
    let mut rig = rig().await;
    let claim = Claim::new("a").with_limit(1);
    cut_off(&mut rig, vec![claim.clone()]).await;
    let other = RedisSemaphore::connect(rig.server.url()).await;
    let other = other.expect("it connects");
    let permit = other.acquire(claim.with_wait(SOON)).await;
    assert!(permit.is_ok(), "{permit:?}");
}
