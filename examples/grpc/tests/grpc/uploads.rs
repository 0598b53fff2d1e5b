//! Calls whose client streams are refused before their messages are read.

use crate::fixture::{ask, channel, limit, serve, soon};
use futures_util::{Stream, StreamExt, stream};
use grpc::{
    ACCOUNT,
    client::PricesClient,
    messages::{Item, Price},
};
use http::uri::PathAndQuery;
use tonic::{Code, Request, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;
use tower_semaphore::MemorySemaphore;

/// An endless stream of messages that exceeds every HTTP/2 window.
fn endless() -> Request<impl Stream<Item = Item> + Send + 'static> {
    let name = "x".repeat(100_000);
    let items = stream::repeat_with(move || Item { name: name.clone() });
    let mut request = Request::new(items);
    let account = "ann".parse().expect("a name");
    request.metadata_mut().insert(ACCOUNT, account);
    request
}

/// Sends an endless upload. `is_two_way` is true for a call that also streams answers.
async fn upload(channel: &Channel, is_two_way: bool) -> Status {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    // The service has no such method, but the limit refuses the call first.
    let path = PathAndQuery::from_static("/market.Prices/Upload");
    let codec = ProstCodec::<Item, Price>::default();
    let answer = async {
        match is_two_way {
            true => grpc.streaming(endless(), path, codec).await.map(drop),
            false => grpc
                .client_streaming(endless(), path, codec)
                .await
                .map(drop),
        }
    };
    soon(answer).await.expect_err("refused")
}

#[tokio::test]
async fn an_upload_is_refused_before_it_is_read_and_harms_no_other_call() {
    let url = serve(limit(1, MemorySemaphore::new()), Default::default()).await;
    let channel = channel(&url).await;
    let mut client = PricesClient::new(channel.clone());
    let held = client.follow(ask("ann", "endless")).await;
    let mut held = held.expect("admitted").boxed();
    // All calls use one connection, whose window would fill with the messages of refused calls.
    for call in 0..40 {
        let status = upload(&channel, call % 2 == 0).await;
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(status.metadata().contains_key("retry-after"));
    }
    let other = soon(client.now(ask("bob", "carrot"))).await;
    assert_eq!(other.expect("admitted").coins, 7);
    assert!(soon(held.next()).await.expect("it goes on").is_ok());
}
