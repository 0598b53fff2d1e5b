//! An account may have five requests in flight.
//!
//! Promises: P1, P21.

use crate::{
    client::{ENDLESS, streams, wait_until_admitted},
    process::Market,
};
use http::Version;

/// With HTTP/2 all six requests use one connection.
#[tokio::test]
async fn the_sixth_request_in_flight_of_an_account_is_refused() {
    let market = Market::start(&[]).await;
    let (http1, http2) = (market.client("ann"), market.http2_client("eve"));
    for (client, version) in [(http1, Version::HTTP_11), (http2, Version::HTTP_2)] {
        let mut held = streams(&client, 5).await;
        assert_eq!(held[0].version(), version);
        let sixth = client.get(ENDLESS).await;
        assert_eq!(sixth.status(), 429);
        assert_eq!(sixth.header("content-type"), "application/problem+json");
        assert_ne!(sixth.header("retry-after"), "");
        assert_eq!(market.client("bob").get("/market").await.status(), 200);
        drop(held.pop());
        wait_until_admitted(&client).await;
    }
}

#[tokio::test]
async fn the_routes_of_the_market_share_the_limit_and_those_of_accounts_have_none() {
    let market = Market::start(&[("LIMIT", "1")]).await;
    let ann = market.client("ann");
    let events = ann.get("/market/events").await;
    assert_eq!(events.status(), 200);

    assert_eq!(ann.get("/market").await.status(), 429);
    assert_eq!(ann.get(ENDLESS).await.status(), 429);
    assert_eq!(ann.list("ann-1", 10).await.status(), 429);
    assert_eq!(ann.purchase("any").await.status(), 429);
    assert_eq!(ann.account("ann").await["funds"], 1_000);
}

#[tokio::test]
async fn the_query_names_the_account_as_the_header_does() {
    let market = Market::start(&[("LIMIT", "1")]).await;
    // The blank must be encoded in a query, but not in a header.
    let held = market.client("an n").get(ENDLESS).await;
    assert_eq!(held.status(), 200);
    let by_query = market
        .anonymous_client()
        .get("/market?account=an%20n")
        .await;
    assert_eq!(by_query.status(), 429);
}

#[tokio::test]
async fn a_request_that_names_no_account_or_two_is_bad() {
    let market = Market::start(&[]).await;
    let anonymous = market.anonymous_client();
    for path in ["/market", "/market?account=", "/market?account=a&account=b"] {
        let answer = anonymous.get(path).await;
        assert_eq!(answer.status(), 400, "{path}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    for names in [&[""][..], &["ann", "ann"]] {
        let mut request = anonymous.request(http::Method::GET, "/market?account=ann");
        for name in names {
            request = request.header("x-account-id", *name);
        }
        assert_eq!(anonymous.send(request, "").await.status(), 400, "{names:?}");
    }
}
