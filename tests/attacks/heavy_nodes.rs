//! Heavy claims on the living nodes of a supplied connection, while one node is dead.

use crate::{
    offered::{TRIES, failures, offer, one_of_two_is_dead},
    routes::keys,
};
use testing::machine::alone;

/// Claims at a rate for the living node are granted, but for 10 %, beside eight times as many for
/// the dead one.
async fn are_granted(weight: u32, rate: u32) {
    let _alone = alone().await;
    let (_servers, store) = one_of_two_is_dead().await;
    let mut tries = Vec::new();
    for attempt in 0..TRIES {
        let keys = |is_on_other| keys(is_on_other, format!("try-{attempt}"));
        let living = offer(&store, keys(false), weight, rate);
        let dead = offer(&store, keys(true), weight, rate * 8);
        let (failed, count) = failures(living).await;
        if failed * 10 <= count {
            return;
        }
        tries.push((failed, count));
        dead.await.expect("no panic");
    }
    panic!("failed, of: {tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_for_a_dead_node_fail_no_heavy_claim_of_another_node() {
    are_granted(1_000, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hundred_claims_of_weight_100_a_second_for_a_dead_node_fail_none_of_another_node() {
    are_granted(100, 50).await;
}
