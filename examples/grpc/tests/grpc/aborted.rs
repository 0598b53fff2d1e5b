//! Calls that lose their permit before they are answered.

use crate::fixture::{BOUND, Scripted, ask, channel, limit, serve, soon};
use futures_util::{StreamExt, stream};
use grpc::{
    ACCOUNT,
    client::PricesClient,
    messages::{Item, Price},
    server::PricesServer,
};
use http::uri::PathAndQuery;
use std::time::Duration;
use testing::{redis::RedisServer, wait::eventually};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status, client::Grpc, transport::Server};
use tonic_prost::ProstCodec;
use tower::ServiceBuilder;
use tower_semaphore::{
    Key, MemorySemaphore, OnLost, Operate, Policy, RedisSemaphore, RequestBody, Semaphore,
};

/// The longest hold, or the longest stall. Long enough for a handler to start.
const BRIEF: Duration = Duration::from_millis(500);

fn assert_lost(status: &Status) {
    let lost = (Code::Unavailable, "the permit was lost");
    assert_eq!((status.code(), status.message()), lost);
    for field in ["retry-after", "grpc-retry-pushback-ms", "ratelimit-policy"] {
        assert!(status.metadata().contains_key(field), "{field}");
    }
}

/// A call whose handler never answers ends when it loses its permit, and the call behind it is answered. The permit is
/// revoked, or else its longest hold ends.
async fn assert_aborted(store: impl Semaphore + Operate + Clone, is_revoked: bool) {
    let (prices, layer) = (Scripted::default(), limit(1, store.clone()));
    let layer = layer.with_on_lost(OnLost::Abort).with_wait(BOUND);
    let layer = match is_revoked {
        true => layer,
        false => layer.with_max_hold(BRIEF),
    };
    let url = serve(layer, prices.clone()).await;
    let mut client = PricesClient::new(channel(&url).await);
    let mut next_client = client.clone();
    let never = tokio::spawn(async move { client.now(ask("ann", "never")).await });
    eventually("it is handled", BOUND, async || prices.running() == 1).await;
    if is_revoked {
        let (policy, key) = (Policy::DEFAULT, Key::from("ann"));
        let usage = store.usage(&policy, &key).await.expect("it is known");
        let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
        assert!(revoked.expect("it is done"));
    }
    assert_lost(
        &soon(never)
            .await
            .expect("no panic")
            .expect_err("it has no answer"),
    );
    assert_eq!(prices.running(), 0, "the handler goes on");
    let next = soon(next_client.now(ask("ann", "carrot"))).await;
    assert_eq!(next.expect("it is admitted").coins, 7);
}

#[tokio::test]
async fn a_call_that_lost_its_permit_is_unavailable_and_its_handler_is_dropped() {
    for is_revoked in [false, true] {
        let store = MemorySemaphore::builder().holders(true).build();
        assert_aborted(store, is_revoked).await;
    }
}

#[tokio::test]
async fn a_call_that_lost_its_permit_in_redis_is_unavailable_and_its_handler_is_dropped() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    for is_revoked in [false, true] {
        assert_aborted(store.clone(), is_revoked).await;
    }
}

#[tokio::test]
async fn a_call_finishes_without_its_permit_unless_the_layer_aborts_it() {
    let layer = limit(1, MemorySemaphore::new()).with_max_hold(Duration::from_millis(1));
    let url = serve(layer, Scripted::default()).await;
    let mut client = PricesClient::new(channel(&url).await);
    let price = soon(client.now(ask("ann", "carrot"))).await;
    assert_eq!(price.expect("a price").coins, 7);
}

#[tokio::test]
async fn a_call_whose_client_does_not_send_its_message_ends_if_bodies_are_watched() {
    let limit = limit(1, MemorySemaphore::new()).with_max_stall(BRIEF);
    let limit = ServiceBuilder::new().layer(limit.with_on_lost(OnLost::Abort));
    let layer = limit.map_request(RequestBody::watch).into_inner();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut server = Server::builder().layer(layer);
    let server = server.add_service(PricesServer::new(Scripted::default()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let channel = channel(&url).await;
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let mut silent = Request::new(stream::pending::<Item>().boxed());
    silent
        .metadata_mut()
        .insert(ACCOUNT, "ann".parse().expect("a name"));
    let path = PathAndQuery::from_static("/market.Prices/Now");
    let codec = ProstCodec::<Item, Price>::default();
    let answer = soon(grpc.client_streaming(silent, path, codec)).await;
    assert_lost(&answer.expect_err("it has no answer"));
    let next = soon(PricesClient::new(channel).now(ask("ann", "carrot"))).await;
    assert_eq!(next.expect("it is admitted").coins, 7);
}
