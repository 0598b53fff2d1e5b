//! Processes on one Redis serve one market.

use crate::{answer::Answer, client::Client, process::Market, soon};
use serde_json::json;
use std::time::Duration;
use testing::redis::RedisServer;

/// Two processes of the market, whose leases last a second.
pub(crate) async fn markets(server: &RedisServer) -> (Market, Market) {
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("LEASE_MS", "1000")];
    (
        Market::start(&settings).await,
        Market::start(&settings).await,
    )
}

/// The id of what was listed.
pub(crate) async fn listed(answer: Answer) -> String {
    assert_eq!(answer.status(), 201);
    let id = answer.json().await["id"].as_str().map(str::to_owned);
    id.expect("a listing has an id")
}

#[tokio::test]
async fn what_is_listed_in_one_process_is_bought_in_the_other() {
    let server = RedisServer::start();
    let (one, two) = markets(&server).await;
    let id = listed(one.client("ann").list("ann-1", 300).await).await;
    let listing = json!({"id": id, "item": "ann-1", "price": 300, "seller": "ann"});
    let for_sale = two.client("bob").get("/market").await;
    assert_eq!(for_sale.json().await, json!([listing]));
    assert_eq!(two.client("bob").purchase(&id).await.status(), 200);
    assert_eq!(one.client("eve").purchase(&id).await.status(), 409, "sold");

    for market in [one.nobody(), two.nobody()] {
        let (ann, bob) = (market.account("ann").await, market.account("bob").await);
        assert_eq!((&ann["funds"], &bob["funds"]), (&json!(1_300), &json!(700)));
        assert_eq!(bob["items"][0], "ann-1");
        let for_sale = market.get("/market?account=ann").await;
        assert_eq!(for_sale.json().await, json!([]));
    }
}

#[tokio::test]
async fn each_process_reports_what_happens_in_the_other() {
    let server = RedisServer::start();
    let (one, two) = markets(&server).await;
    let mut here = one.client("eve").get("/market/events").await;
    let mut there = two.client("eve").get("/market/events").await;

    let id = listed(one.client("ann").list("ann-1", 300).await).await;
    for events in [&mut here, &mut there] {
        let (name, data) = events.event().await;
        assert_eq!((&*name, &data["id"]), ("listing", &json!(id)));
    }
    assert_eq!(two.client("bob").purchase(&id).await.status(), 200);
    for events in [&mut here, &mut there] {
        let (name, data) = events.event().await;
        assert_eq!((&*name, &data["id"]), ("trade", &json!(id)));
        assert_eq!(
            (&data["seller"], &data["buyer"]),
            (&json!("ann"), &json!("bob"))
        );
    }
}

#[tokio::test]
async fn events_are_heard_again_when_redis_is_back() {
    let mut server = RedisServer::start();
    let (one, two) = markets(&server).await;
    let eve = two.client("eve");
    let mut there = eve.get("/market/events").await;
    server.restart();
    // An event from before the other process has subscribed again is lost.
    let listing = async {
        for n in 0.. {
            one.client(&format!("ann{n}"))
                .list(&format!("ann{n}-1"), 300)
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The server has lost the permit of the stream, which is cut if that is noticed. A browser comes
    // back then.
    let hearing = async {
        loop {
            match there.try_event().await {
                Some((name, _)) => return name,
                None => there = eve.get("/market/events").await,
            }
        }
    };
    tokio::select! {
        () = listing => {}
        name = hearing => assert_eq!(name, "listing"),
    }
}

#[tokio::test]
async fn an_account_is_born_once_however_many_see_it_first() {
    let server = RedisServer::start();
    let (one, two) = markets(&server).await;
    let sales = (0..10).map(|n| {
        let market = if n % 2 == 0 { &one } else { &two };
        let client = market.client(&format!("s{n}"));
        async move { listed(client.list(&format!("s{n}-1"), 1).await).await }
    });
    let ids = futures_util::future::join_all(sales).await;
    let bought = ids.iter().enumerate().map(|(n, id)| {
        let market = if n % 2 == 0 { &two } else { &one };
        let bob = market.client("bob");
        async move { bought(&bob, id).await }
    });
    futures_util::future::join_all(bought).await;
    let bob = one.nobody().account("bob").await;
    assert_eq!(bob["funds"], 990);
    assert_eq!(bob["items"].as_array().map(Vec::len), Some(20));
}

/// Buys it, as soon as the account has a permit.
async fn bought(client: &Client, id: &str) {
    let buying = async {
        loop {
            match client.purchase(id).await.status() {
                429 => {}
                status => return status,
            }
        }
    };
    assert_eq!(soon("a permit", buying).await, 200);
}
