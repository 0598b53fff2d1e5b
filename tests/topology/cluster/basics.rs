//! A cluster at rest.
//!
//! Promises: P1, P3.

use super::{connect, name, patient};
use std::{collections::HashSet, time::Duration};
use testing::redis::Cluster;
use tower_semaphore::{Claim, Operate, Policy, Semaphore, semaphore::StoredKey};

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_on_through_all_nodes_whichever_process_asks() {
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
    for asked in stores.iter().cycle() {
        let page = asked.keys_page(&Policy::DEFAULT, cursor.as_deref(), Duration::ZERO);
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
