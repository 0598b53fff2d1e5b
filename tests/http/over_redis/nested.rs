//! Nested limits that count in one Redis semaphore through several handles.
//!
//! Promises: P20.

use crate::layer::{
    rig::{ok, send},
    same,
};
use testing::{
    http_requests::{limit, request},
    redis::{Cluster, RedisServer},
    resp::Raw,
    stores::Store,
};
use tower::Layer;
use tower_semaphore::RedisSemaphore;

async fn connect(url: String) -> RedisSemaphore {
    RedisSemaphore::connect(url).await.expect("it connects")
}

/// The status of a request under two nested limits, one per handle. It is 500 if both count in one store, because the
/// request would count twice.
async fn status(outer: &RedisSemaphore, inner: RedisSemaphore) -> u16 {
    let service = limit(9, outer.clone()).layer(limit(9, inner).layer(ok()));
    let answer = send(&service, request("ann")).await;
    answer.status().as_u16()
}

#[tokio::test]
async fn handles_to_one_server_and_prefix_are_one_store_whatever_their_url() {
    let server = RedisServer::start();
    let by_name = |host| connect(format!("redis://{host}:{}/", server.port()));
    let outer = by_name("127.0.0.1").await;
    for (name, inner) in [
        ("127.0.0.1", by_name("127.0.0.1").await),
        ("localhost", by_name("localhost").await),
        ("LOCALHOST", by_name("LOCALHOST").await),
        ("127.1", by_name("127.1").await),
    ] {
        assert_eq!(status(&outer, inner).await, 500, "{name}");
    }
    let store: Store = std::sync::Arc::new(outer);
    same::wait_until_free(&store, "ann").await;
}

#[tokio::test]
async fn handles_to_an_address_whose_server_permits_no_info_are_one_store() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["ACL", "SETUSER", "default", "-info"]).await;
    let outer = connect(server.url()).await;
    assert_eq!(status(&outer, connect(server.url()).await).await, 500);
    let other = RedisServer::start();
    assert_eq!(status(&outer, connect(other.url()).await).await, 200);
}

#[tokio::test]
async fn handles_to_a_cluster_are_one_store_whatever_node_they_name() {
    let cluster = Cluster::of_primaries(3).await;
    let through = async |node: usize| {
        let urls = [cluster.node(node).url()];
        let connected = RedisSemaphore::connect_cluster(urls).await;
        connected.expect("it connects")
    };
    let outer = through(0).await;
    for node in 0..3 {
        assert_eq!(status(&outer, through(node).await).await, 500, "{node}");
    }
}

#[tokio::test]
async fn another_prefix_is_another_store() {
    let server = RedisServer::start();
    let other = RedisSemaphore::builder().prefix("other:");
    let inner = other.connect(server.url()).await.expect("it connects");
    let outer = connect(server.url()).await;
    assert_eq!(status(&outer, inner).await, 200);
}
