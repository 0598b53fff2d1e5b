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

/// The longest time for the end of a body to take effect in another process.
const FELT: Duration = Duration::from_secs(1);
/// Generous, because failovers take seconds even on an idle machine.
const FAILOVER: Duration = Duration::from_secs(60);

/// Two processes with this lease.
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

async fn is_a_refusal(answer: Answer) {
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let policy = answer.header("ratelimit-policy");
    assert_eq!(policy, r#""concurrency";q=5;qu="concurrent-requests""#);
    let left = format!(r#""concurrency";r=0;t={}"#, answer.header("retry-after"));
    assert_eq!(answer.header("ratelimit"), left);
    let problem = answer.json().await;
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], json!(["concurrency"]));
    let kind = problem["type"].as_str().expect("a problem has a type");
    assert!(kind.ends_with("#quota-exceeded"), "{kind}");
    assert!(!problem.to_string().contains("ann"), "it names the account");
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
async fn share_permits(one: &Market, two: &Market) {
    let (here, there) = (one.client("ann"), two.client("ann"));
    let mut held = streams(&here, 3).await;
    let held_there = streams(&there, 2).await;
    is_a_refusal(here.get(ENDLESS).await).await;
    is_a_refusal(there.get(ENDLESS).await).await;
    for (market, other) in [(one, "bob"), (two, "eve")] {
        let other = market.client(other).get("/market").await;
        assert_eq!(other.status(), 200);
        assert_eq!(other.header("ratelimit"), r#""concurrency";r=4"#);
    }
    drop(held.pop());
    let is_free = async || there.get("/market").await.status() == 200;
    eventually("a permit is taken there", FELT, is_free).await;
    drop((held, held_there));
}

/// Asserts that an item listed in one process is bought in the other, once, and that both send the events.
async fn share_trades(one: &Market, two: &Market) {
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
        let both = (&data["seller"], &data["buyer"]);
        assert_eq!(both, (&json!("joe"), &json!("kim")));
    }
    for market in [one.nobody(), two.nobody()] {
        let (joe, kim) = (market.account("joe").await, market.account("kim").await);
        assert_eq!((&joe["funds"], &kim["funds"]), (&json!(1_300), &json!(700)));
        assert_eq!(kim["items"][0], "joe-1");
        let for_sale = market.get("/market?account=ann").await;
        assert_eq!(for_sale.json().await, json!([]));
    }
}

async fn are_one_market(one: &Market, two: &Market) {
    share_permits(one, two).await;
    share_trades(one, two).await;
}

#[tokio::test]
async fn two_processes_on_one_redis_are_one_market_and_leave_no_permit() {
    let server = RedisServer::start();
    let [one, two] = markets(&server, "60000").await;
    are_one_market(&one, &two).await;
    let mut raw = Raw::connect(server.port()).await;
    let held = "semaphore:2:{concurrency:ann}:held";
    eventually("all are released", FELT, async || {
        raw.zcard(held).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_cluster_has_one_market() {
    let cluster = Cluster::of_primaries(3).await;
    let nodes = addresses(&cluster.urls());
    let some = nodes.rsplit_once(',').expect("there are three").0;
    let one = Market::start(&[("REDIS_CLUSTER", &*nodes)]).await;
    let two = Market::start(&[("REDIS_CLUSTER", some)]).await;
    are_one_market(&one, &two).await;
}

#[tokio::test]
async fn a_primary_that_sentinels_name_has_one_market_and_so_has_its_successor() {
    let mut servers = Sentinels::start().await;
    let sentinels = addresses(&servers.urls());
    let settings = [
        ("REDIS_SENTINELS", &*sentinels),
        ("REDIS_SENTINEL_NAME", Sentinels::NAME),
    ];
    let one = Market::start(&settings).await;
    let two = Market::start(&settings).await;
    are_one_market(&one, &two).await;

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
async fn events_are_heard_again_when_redis_is_back() {
    let mut server = RedisServer::start();
    let [one, two] = markets(&server, "1000").await;
    let eve = two.client("eve");
    let mut there = eve.get("/market/events").await;
    server.restart();
    // An event is lost if it is sent before the other process has subscribed again.
    let listing = async {
        for n in 0.. {
            one.client(&format!("ann{n}"))
                .list(&format!("ann{n}-1"), 300)
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The server has lost the stream's permit. If the market notices that, it cuts the stream, and a browser
    // reconnects.
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
