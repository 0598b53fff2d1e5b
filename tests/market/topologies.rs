//! A market on several servers serves the same limits and the same trades.

use crate::{
    one_market::listed,
    permits::{ENDLESS, admitted, streams},
    process::Market,
};
use std::time::Duration;
use testing::{
    redis::{Cluster, Sentinels},
    wait::eventually,
};

/// Failovers take seconds, and a busy machine has time.
const BOUND: Duration = Duration::from_secs(60);

/// `HOST:PORT,HOST:PORT`, as the settings have it.
fn addresses(urls: &[String]) -> String {
    let address = |url: &String| {
        let address = url.trim_start_matches("redis://");
        address.trim_end_matches('/').to_owned()
    };
    urls.iter().map(address).collect::<Vec<_>>().join(",")
}

/// Two processes are one market: five requests of an account in flight, and items that are sold once.
async fn is_one_market(one: &Market, two: &Market) {
    let mut here = streams(&one.client("ann"), 3).await;
    let there = streams(&two.client("ann"), 2).await;
    for market in [one, two] {
        assert_eq!(market.client("ann").get(ENDLESS).await.status(), 429);
        assert_eq!(market.client("bob").get("/market").await.status(), 200);
    }
    drop(here.pop());
    admitted(&two.client("ann")).await;
    drop((here, there));

    let mut events = two.client("eve").get("/market/events").await;
    let id = listed(one.client("joe").list("joe-1", 300).await).await;
    let (name, data) = events.event().await;
    assert_eq!((&*name, &data["id"]), ("listing", &id.as_str().into()));
    assert_eq!(two.client("kim").purchase(&id).await.status(), 200);
    assert_eq!(one.client("bob").purchase(&id).await.status(), 409, "sold");
    assert_eq!(one.nobody().account("kim").await["funds"], 700);
}

#[tokio::test]
async fn a_cluster_has_one_market() {
    let cluster = Cluster::of_primaries(3).await;
    let nodes = addresses(&cluster.urls());
    let some = nodes.rsplit_once(',').expect("there are three").0;
    let one = Market::start(&[("REDIS_CLUSTER", &*nodes)]).await;
    let two = Market::start(&[("REDIS_CLUSTER", some)]).await;
    is_one_market(&one, &two).await;
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
    is_one_market(&one, &two).await;

    servers.server_mut(0).kill();
    let joe = one.client("joe");
    eventually("an item is listed", BOUND, async || {
        joe.list("joe-2", 300).await.status() == 201
    })
    .await;
    eventually("it is for sale in the other process", BOUND, async || {
        let answer = two.client("bob").get("/market").await;
        answer.status() == 200 && answer.json().await.to_string().contains("joe-2")
    })
    .await;
}
