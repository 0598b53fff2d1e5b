//! A cluster at rest.

use crate::{connect, name, patient, support::redis::Cluster};
use tower_semaphore::{Claim, Semaphore};

#[tokio::test(flavor = "multi_thread")]
async fn each_key_lives_on_the_node_of_its_slot() {
    let start = std::time::Instant::now();
    let cluster = Cluster::of_pairs(3).await;
    eprintln!("up after {:?}", start.elapsed());
    let store = connect(patient(), &cluster).await;
    for node in 0..3 {
        for key in cluster.keys_of(node, 5, name).await {
            let permit = store.acquire(Claim::new(key.as_str()).with_limit(1)).await;
            let permit = permit.expect("there is room");
            let held = format!("{}:held", name(&key));
            assert_eq!(cluster.raw(node).await.zcard(&held).await, 1);
            assert!(permit.release().await);
        }
    }
}
