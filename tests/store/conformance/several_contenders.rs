//! Many tasks that claim several limits at the same time, in every store. `several_limits.rs` lists these facts.

use super::{BOUND, Store, several::until_held};
use testing::{in_flight::InFlight, levels::claims};
use tokio::task::{JoinSet, yield_now};
use tower_semaphore::{AcquireError, Semaphore};

const ROUNDS: u32 = 40;

/// Claims repeatedly, with and without waiting. Returns how many claims were granted, and how many were refused.
async fn contend(store: Store, account: u32, fleet: InFlight) -> (u32, u32) {
    let (mut granted, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let claims = claims(&format!("account-{account}"), [4, 9, 7]);
        let waits = (round + account).is_multiple_of(4);
        let claims = claims.map(|claim| match waits {
            true => claim.with_wait(BOUND * 6),
            false => claim,
        });
        match store.acquire_all(claims.into()).await {
            Ok(permit) => {
                granted += 1;
                let inside = fleet.begin();
                yield_now().await;
                drop(inside);
                assert!(permit.release().await);
            }
            Err(AcquireError::Full { .. }) if !waits => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    (granted, refused)
}

pub(crate) async fn fifty_contenders_never_exceed_a_limit_and_leave_nothing_behind(store: Store) {
    let (mut contenders, fleet) = (JoinSet::new(), InFlight::default());
    for contender in 0..50 {
        contenders.spawn(contend(store.clone(), contender % 5, fleet.clone()));
    }
    let counts = contenders.join_all().await;
    let granted: u32 = counts.iter().map(|(granted, _)| granted).sum();
    let refused: u32 = counts.iter().map(|(_, refused)| refused).sum();
    assert!(granted > 0 && refused > 0, "{granted} and {refused}");
    assert!(fleet.most() <= 7, "{} of 7", fleet.most());
    for account in 0..5 {
        let claims = claims(&format!("account-{account}"), [4, 9, 7]);
        until_held(&store, &claims, &[0, 0, 0]).await;
        assert!(store.acquire_all(claims.into()).await.is_ok(), "{account}");
    }
}
