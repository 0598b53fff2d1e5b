//! A replica that lags takes the place of its primary.

use super::crowd::{Crowd, HELD, LIMIT};
use std::time::Duration;
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};

const BOUND: Duration = Duration::from_secs(20);

async fn replica_of(server: &RedisServer) -> (RedisServer, Raw) {
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    let mut raw = Raw::connect(replica.port()).await;
    eventually("the replica is in step", BOUND, async || {
        let info = raw.cmd(&["INFO", "replication"]).await;
        info.text().contains("master_link_status:up")
    })
    .await;
    (replica, raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_replica_that_lags_lets_in_a_limit_more_at_most_and_holders_know() {
    let mut primary = RedisServer::start();
    let proxy = Proxy::start(&primary).await;
    let (replica, mut raw) = replica_of(&primary).await;
    // It gets nothing from here on, so it knows of no permit.
    assert_eq!(raw.cmd(&["REPLICAOF", "NO", "ONE"]).await.text(), "OK");
    let crowd = Crowd::start(&proxy.url()).await;
    assert_eq!(raw.zcard(HELD).await, 0);
    primary.kill();
    proxy.redirect(&replica);
    crowd.is_told_or_back().await;
    crowd.goes_on().await;
    let most = crowd.most();
    println!("{most} in flight under a limit of {LIMIT}");
    assert!(most <= 2 * LIMIT, "{most} in flight");
    crowd.settles(&mut raw).await;
}
