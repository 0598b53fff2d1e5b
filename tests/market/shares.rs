//! Accounts share the fleet's limit in turns: a paying account gets four turns for each turn of another account.
//!
//! Promises: P16.

use crate::{
    client::{Answer, ENDLESS, streams},
    process::Market,
    soon,
};
use http::Method;
use testing::wait::eventually;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Each account's plan and number of requests. The crowds of the accounts that do not pay arrive first.
const CROWDS: [(&str, Option<&str>, usize); 3] = [
    ("bob", None, 10),
    ("eve", Some("basic"), 10),
    ("ann", Some("pro"), 24),
];

type Admitted = UnboundedSender<(&'static str, Answer)>;

/// Admits one stream at a time while all other requests wait.
async fn take_turns(store: &[(&str, &str)]) {
    let settings = [
        &[
            ("LIMIT", "100"),
            ("FLEET_LIMIT", "1"),
            ("WAIT_MS", "600000"),
        ],
        store,
    ];
    let market = Market::start(&settings.concat()).await;
    let mut held = streams(&market.client("holder"), 1).await;
    let (sender, mut admitted) = unbounded_channel();
    let mut waiting = 0;
    for (account, plan, times) in CROWDS {
        for _ in 0..times {
            ask(&market, account, plan, sender.clone());
        }
        waiting += times;
        all_wait(&market, waiting).await;
    }
    let mut order = Vec::new();
    while order.len() < waiting {
        held.clear();
        let next = soon("the next is admitted", admitted.recv()).await;
        let (account, stream) = next.expect("others wait");
        assert_eq!(stream.status(), 200);
        order.push(account);
        held.push(stream);
    }
    // While all three accounts wait, every six turns go four to ann and one each to bob and eve.
    let turns = |account| order[..30].iter().filter(|next| **next == account).count();
    let all = ["ann", "bob", "eve"].map(turns);
    let due = [20, 5, 5];
    let is_near = all
        .iter()
        .zip(due)
        .all(|(turns, due)| turns.abs_diff(due) <= 1);
    assert!(is_near, "{all:?}: {order:?}");
}

fn ask(market: &Market, account: &'static str, plan: Option<&'static str>, admitted: Admitted) {
    let client = market.client(account);
    tokio::spawn(async move {
        let request = client.request(Method::GET, ENDLESS);
        let request = plan
            .into_iter()
            .fold(request, |request, plan| request.header("x-plan", plan));
        let stream = client.send(request, "").await;
        drop(admitted.send((account, stream)));
    });
}

async fn all_wait(market: &Market, count: usize) {
    let nobody = market.nobody();
    eventually("all wait for the fleet", crate::BOUND, async || {
        let usage = nobody.get("/fleet/permits").await.json().await;
        usage["waiting"].as_array().map(Vec::len) == Some(count)
    })
    .await;
}

#[tokio::test]
async fn an_account_that_pays_has_four_turns_for_one_of_each_other_in_memory() {
    take_turns(&[]).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn an_account_that_pays_has_four_turns_for_one_of_each_other_in_redis() {
    let server = testing::redis::RedisServer::start();
    take_turns(&[("REDIS_URL", &server.url())]).await;
}
