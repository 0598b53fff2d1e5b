//! Processes that share a server, a cluster, or a primary behind Sentinels form one market: they share the permits of
//! an account, the listings, the purchases and the events.
//!
//! Promises: P1, P24.

use crate::{
    client::{Answer, ENDLESS, streams},
    process::Market,
};
use serde_json::json;
use std::time::Duration;
use testing::{
    redis::{Cluster, RedisServer, Sentinels},
    resp::Raw,
    wait::eventually,
};

/// The longest time from the end of a body until another process can take its permit.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);
/// The bound for a failover, which takes seconds even on an idle machine.
const FAILOVER: Duration = Duration::from_secs(60);

/// Starts two processes with this lease.
pub(crate) async fn markets(server: &RedisServer, lease_ms: &str) -> [Market; 2] {
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("LEASE_MS", lease_ms)];
    [
        Market::start(&settings).await,
        Market::start(&settings).await,
    ]
}

/// Asserts that an item was listed. Returns the listing's id.
pub(crate) async fn listed(answer: Answer) -> String {
    assert_eq!(answer.status(), 201);
    let id = answer.json().await["id"].as_str().map(str::to_owned);
    id.expect("a listing has an id")
}

/// Asserts that a request of ann was refused, with all fields of a refusal and without her name.
async fn assert_refused(answer: Answer) {
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let policy = answer.header("ratelimit-policy");
    assert_eq!(policy, r#""concurrency";q=5;qu="concurrent-requests""#);
    let none_left = format!(r#""concurrency";r=0;t={}"#, answer.header("retry-after"));
    assert_eq!(answer.header("ratelimit"), none_left);
    let problem = answer.json().await;
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], json!(["concurrency"]));
    let kind = problem["type"].as_str().expect("a problem has a type");
    assert!(kind.ends_with("#quota-exceeded"), "{kind}");
    assert!(
        !problem.to_string().contains("ann"),
        "the problem names the account"
    );
}

/// Formats addresses as the settings expect them: `HOST:PORT,HOST:PORT`.
fn addresses(urls: &[String]) -> String {
    let address = |url: &String| {
        let address = url.trim_start_matches("redis://");
        address.trim_end_matches('/').to_owned()
    };
    urls.iter().map(address).collect::<Vec<_>>().join(",")
}

/// Asserts that an account has at most five requests in flight over both processes.
async fn assert_permits_are_shared(one: &Market, two: &Market) {
    let (here, there) = (one.client("ann"), two.client("ann"));
    let mut held = streams(&here, 3).await;
    let held_there = streams(&there, 2).await;
    assert_refused(here.get(ENDLESS).await).await;
    assert_refused(there.get(ENDLESS).await).await;
    for (market, account) in [(one, "bob"), (two, "eve")] {
        let answer = market.client(account).get("/market").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.header("ratelimit"), r#""concurrency";r=4"#);
    }
    drop(held.pop());
    let is_admitted = async || there.get("/market").await.status() == 200;
    eventually("a permit is taken there", RELEASED_WITHIN, is_admitted).await;
    // The other streams have run until here.
    drop((held, held_there));
}

/// Asserts that an item listed in one process is bought in the other, once, and that both send the events.
async fn assert_trades_are_shared(one: &Market, two: &Market) {
    let mut here = one.client("eve").get("/market/events").await;
    let mut there = two.client("eve").get("/market/events").await;
    let id = listed(one.client("joe").list("joe-1", 300).await).await;
    let listing = json!({"id": id, "item": "joe-1", "price": 300, "seller": "joe"});
    let for_sale = two.client("kim").get("/market").await;
    assert_eq!(for_sale.json().await, json!([listing]));
    assert_eq!(two.client("kim").purchase(&id).await.status(), 200);
    assert_eq!(one.client("bob").purchase(&id).await.status(), 409, "sold");
    for events in [&mut here, &mut there] {
        let (name, data) = events.event().await;
        assert_eq!((&*name, &data["id"]), ("listing", &json!(id)));
        let (name, data) = events.event().await;
        assert_eq!((&*name, &data["id"]), ("trade", &json!(id)));
        let traders = (&data["seller"], &data["buyer"]);
        assert_eq!(traders, (&json!("joe"), &json!("kim")));
    }
    // Each account begins with 1,000 coins, and the item has cost 300.
    for market in [one.anonymous_client(), two.anonymous_client()] {
        let (joe, kim) = (market.account("joe").await, market.account("kim").await);
        assert_eq!((&joe["funds"], &kim["funds"]), (&json!(1_300), &json!(700)));
        assert_eq!(kim["items"][0], "joe-1");
        let for_sale = market.get("/market?account=ann").await;
        assert_eq!(for_sale.json().await, json!([]));
    }
}

async fn assert_one_market(one: &Market, two: &Market) {
    assert_permits_are_shared(one, two).await;
    assert_trades_are_shared(one, two).await;
}

#[tokio::test]
async fn two_processes_on_one_redis_are_one_market_and_leave_no_permit() {
    let server = RedisServer::start();
    // With this lease, a permit that was not released would still be held at the end.
    let [one, two] = markets(&server, "60000").await;
    assert_one_market(&one, &two).await;
    let mut raw = Raw::connect(server.port()).await;
    let held = "semaphore:2:{concurrency:ann}:held";
    eventually("all are released", RELEASED_WITHIN, async || {
        raw.zcard(held).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_cluster_has_one_market() {
    let cluster = Cluster::of_primaries(3).await;
    let nodes = addresses(&cluster.urls());
    // The second process finds the third node by asking the first two.
    let (first_two, _) = nodes.rsplit_once(',').expect("there are three");
    let one = Market::start(&[("REDIS_CLUSTER", &*nodes)]).await;
    let two = Market::start(&[("REDIS_CLUSTER", first_two)]).await;
    assert_one_market(&one, &two).await;
}

#[tokio::test]
async fn processes_that_use_sentinels_are_one_market_before_and_after_a_failover() {
    let mut servers = Sentinels::start().await;
    let sentinels = addresses(&servers.urls());
    let settings = [
        ("REDIS_SENTINELS", &*sentinels),
        ("REDIS_SENTINEL_NAME", Sentinels::NAME),
    ];
    let one = Market::start(&settings).await;
    let two = Market::start(&settings).await;
    assert_one_market(&one, &two).await;

    servers.server_mut(0).kill();
    let joe = one.client("joe");
    eventually("an item is listed", FAILOVER, async || {
        joe.list("joe-2", 300).await.status() == 201
    })
    .await;
    eventually(
        "it is for sale in the other process",
        FAILOVER,
        async || {
            let answer = two.client("bob").get("/market").await;
            answer.status() == 200 && answer.json().await.to_string().contains("joe-2")
        },
    )
    .await;
}

#[tokio::test]
async fn events_arrive_again_when_redis_is_back() {
    let mut server = RedisServer::start();
    let [one, two] = markets(&server, "1000").await;
    let eve = two.client("eve");
    let mut there = eve.get("/market/events").await;
    server.restart();
    // An event is lost if it is sent before the other process has subscribed again, so list items until one arrives.
    let listing = async {
        for n in 0.. {
            one.client(&format!("ann{n}"))
                .list(&format!("ann{n}-1"), 300)
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The restarted server has lost the stream's permit. If the market notices that, it cuts the stream. Reconnect
    // then, as a browser does.
    let first_event = async {
        loop {
            match there.try_event().await {
                Some((name, _)) => return name,
                None => there = eve.get("/market/events").await,
            }
        }
    };
    tokio::select! {
        () = listing => {}
        name = first_event => assert_eq!(name, "listing"),
    }
}
