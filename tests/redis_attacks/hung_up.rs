//! A claim whose caller has gone, and whose release overtook its acquire.

use crate::support::{
    rig::{BOUND, Rig, until_held},
    wait::eventually,
};
use std::time::Duration;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// An acquire that has no answer may run for as long.
const TIMEOUT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn no_claim_is_refused_while_only_one_that_hung_up_holds() {
    let mut rig = Rig::new(RedisSemaphore::builder().timeout(TIMEOUT)).await;
    let claim = || rig.store.acquire(Claim::new("ann").with_limit(1));
    assert!(claim().await.expect("there is room").release().await);
    rig.proxy.clear_log();
    rig.proxy.delay(TIMEOUT / 6, Duration::ZERO);
    let names_ann = |arg: &Vec<u8>| arg.windows(4).any(|part| part == b":ann");
    let sent = async || {
        let seen = rig.proxy.log();
        seen.iter().any(|seen| seen.args.iter().any(names_ann))
    };
    tokio::select! {
        answer = claim() => panic!("{answer:?}"),
        () = eventually("it is on its way", BOUND, sent) => {}
    }
    // The release travels over another connection, and arrives first.
    rig.proxy.delay(Duration::ZERO, Duration::ZERO);
    until_held(&mut rig.raw, 1).await;
    let answer = claim().await;
    assert!(answer.is_ok(), "{answer:?}");
}
