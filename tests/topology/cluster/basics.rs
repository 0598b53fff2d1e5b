//! A cluster at rest.
//!
//! Promises: P1, P3.

use super::{connect, name, patient};
use std::{collections::HashSet, time::Duration};
use testing::redis::Cluster;
use tower_semaphore::{
    AcquireError, Claim, Claims, Operate, Policy, Semaphore,
    semaphore::{ClaimError, StoredKey},
};

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_keys_cover_all_nodes_whichever_process_asks_for_them() {
    let cluster = Cluster::of_primaries(3).await;
    let stores = [
        connect(patient(), &cluster).await,
        connect(patient(), &cluster).await,
    ];
    let (mut held, mut permits) = (HashSet::new(), Vec::new());
    for node in 0..3 {
        for key in cluster.keys_of(node, 5, name).await {
            let permit = stores[0]
                .acquire(Claim::new(key.as_str()).with_limit(1))
                .await;
            permits.push(permit.expect("there is room"));
            held.insert(StoredKey::whole(key));
        }
    }
    let (mut found, mut cursor) = (HashSet::new(), None);
    for store in stores.iter().cycle() {
        let page = store.keys_page(&Policy::DEFAULT, cursor.as_deref(), Duration::ZERO);
        let page = page
            .await
            .expect("it answers")
            .expect("a cursor of either process");
        found.extend(page.keys);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, held);
}

/// A claim that waits at one slot has already reserved units of the budget at another slot. The bound keeps it from
/// reserving them for several windows.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_behind_a_budget_of_another_slot_for_at_most_its_window() {
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let minute = Duration::from_secs(60);
    let claims = |wait| {
        let claim = |policy| Claim::new("a").with_policy(policy).with_limit(9);
        let tokens = claim("tokens").with_window(minute).with_wait(wait);
        Claims::from([claim("cost").with_window(minute), tokens])
    };
    let granted = store.acquire_all(claims(minute)).await;
    assert!(granted.is_ok(), "{granted:?}");
    let too_long = minute + Duration::from_millis(1);
    let refused = store.acquire_all(claims(too_long)).await;
    let Err(AcquireError::Invalid {
        source: ClaimError::LongWait { wait, window, .. },
        ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((wait, window), (too_long, minute));
}
