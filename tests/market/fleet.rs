//! Markets that share one Redis share the permits of an account.

use crate::{
    answer::Answer,
    permits::{ENDLESS, admitted, streams},
    process::Market,
    soon,
};
use serde_json::json;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};

const HELD: &str = "semaphore:{concurrency:ann}:held";
/// How long the end of a body may take to be felt in another process.
const FELT: Duration = Duration::from_secs(1);

async fn market(server: &RedisServer, lease_ms: &str) -> Market {
    Market::start(&[("REDIS_URL", &server.url()), ("LEASE_MS", lease_ms)]).await
}

/// The lease ends of what `ann` holds, earliest first, in milliseconds of the server's clock.
async fn ends(raw: &mut Raw) -> Vec<i64> {
    let members = raw.zmembers(HELD).await;
    members.into_iter().map(|(_, end)| end as i64).collect()
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

#[tokio::test]
async fn two_processes_on_one_redis_share_an_accounts_five_permits() {
    let server = RedisServer::start();
    let (one, two) = (
        market(&server, "60000").await,
        market(&server, "60000").await,
    );
    let (here, there) = (one.client("ann"), two.client("ann"));
    let mut held = streams(&here, 3).await;
    let _held_there = streams(&there, 2).await;

    is_a_refusal(here.get(ENDLESS).await).await;
    is_a_refusal(there.get(ENDLESS).await).await;
    for (market, other) in [(&one, "bob"), (&two, "eve")] {
        let other = market.client(other).get("/market").await;
        assert_eq!(other.status(), 200);
        assert_eq!(other.header("ratelimit"), r#""concurrency";r=4"#);
    }

    drop(held.pop());
    eventually(
        "a permit that was released here is taken there",
        FELT,
        async || there.get("/market").await.status() == 200,
    )
    .await;
}

#[tokio::test]
async fn a_body_that_ends_by_itself_frees_its_permit_for_the_other_process() {
    let server = RedisServer::start();
    let (one, two) = (
        market(&server, "60000").await,
        market(&server, "60000").await,
    );
    let _held = streams(&two.client("ann"), 4).await;
    let export = one
        .client("ann")
        .get("/market/export?rows=3&interval_ms=100")
        .await;
    is_a_refusal(two.client("ann").get(ENDLESS).await).await;

    assert_eq!(export.text().await.lines().count(), 3);
    let there = two.client("ann");
    eventually("its permit is free", FELT, async || {
        there.get("/market").await.status() == 200
    })
    .await;
}

#[tokio::test]
async fn a_killed_process_holds_its_permits_to_the_end_of_their_leases_and_not_much_longer() {
    let server = RedisServer::start();
    let (mut one, two) = (market(&server, "2000").await, market(&server, "2000").await);
    let _held = streams(&one.client("ann"), 5).await;
    let mut raw = Raw::connect(server.port()).await;
    one.kill().await;
    let ends = ends(&mut raw).await;
    assert_eq!(ends.len(), 5);

    let mut taken = Vec::new();
    while taken.len() < 5 {
        let end = ends[taken.len()];
        let before = raw.server_time_ms().await;
        let answer = two.client("ann").get(ENDLESS).await;
        let after = raw.server_time_ms().await;
        if answer.status() == 200 {
            assert!(after >= end, "taken {} ms too early", end - after);
            taken.push(answer);
        } else {
            assert_eq!(answer.status(), 429);
            assert!(before <= end + 1_000, "not free a second after the lease");
        }
    }
}

#[tokio::test]
async fn a_process_that_is_stopped_by_a_signal_releases_all_permits_before_it_ends() {
    let server = RedisServer::start();
    let (one, two) = (
        market(&server, "60000").await,
        market(&server, "60000").await,
    );
    let _cut = streams(&one.client("ann"), 4).await;
    let events = one.client("ann").get("/market/events").await;
    assert_eq!(events.status(), 200);
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(ends(&mut raw).await.len(), 5);

    one.terminate();
    assert!(one.ended().await.success());
    assert_eq!(ends(&mut raw).await.len(), 0, "left behind");
    admitted(&two.client("ann")).await;
}

#[tokio::test]
async fn requests_that_were_cut_off_by_their_clients_leave_nothing_in_redis() {
    let server = RedisServer::start();
    let market = market(&server, "60000").await;
    let held = streams(&market.client("ann"), 5).await;
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(ends(&mut raw).await.len(), 5);
    drop(held);
    let gone = eventually("all are released", FELT, async || {
        ends(&mut raw).await.is_empty()
    });
    soon("the end of it", gone).await;
}
