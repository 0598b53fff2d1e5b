//! Commands that change something while other processes hold permits. Status 1 means that nothing was found, 2 that the
//! arguments are wrong.

use crate::{
    fleet::Fleet,
    golden::{assert_golden, parsed},
    program::{run_line, run_on},
};
use serde_json::{Value, json};
use std::time::Duration;
use testing::{redis::RedisServer, wait::eventually};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);

async fn store(server: &RedisServer) -> RedisSemaphore {
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    patient.connect(server.url()).await.expect("it connects")
}

async fn granted(store: &RedisSemaphore) -> Permit {
    let permit = store.acquire(Claim::new("ann").with_limit(5)).await;
    permit.expect("there is room")
}

async fn assert_lost(permit: &Permit) {
    let lost = tokio::time::timeout(BOUND, permit.lost()).await;
    lost.expect("its holder is notified of the loss");
}

/// The two forms of a permit's id.
struct Id {
    whole: String,
    /// As the table shows it.
    short: String,
}

/// The ids of the permits that are held.
fn ids(server: &RedisServer) -> Vec<Id> {
    let usage = run_line(server, "--json usage concurrency ann").out;
    let usage: Value = serde_json::from_str(&usage).expect("JSON");
    let held = usage["held"].as_array().expect("a list");
    let shown = run_line(server, "usage concurrency ann").out;
    // The first permit follows the title, an empty line and the heading.
    let shown = shown.lines().skip(3).map(|line| line.split(' ').next());
    let shown = shown.map(|id| id.unwrap_or_default().to_owned());
    let ids = held
        .iter()
        .map(|info| info["id"].as_str().expect("text").to_owned());
    let ids = ids.zip(shown).map(|(whole, short)| Id { whole, short });
    ids.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_revoked_by_its_id_whole_or_as_it_is_shown() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permits = [
        granted(&store).await,
        granted(&store).await,
        granted(&store).await,
    ];
    let ids = ids(&server);
    let named = [&ids[0].whole, &ids[1].short];
    for (permit, id) in permits.iter().zip(named) {
        let run = run_line(&server, &format!("revoke concurrency ann {id}"));
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_lost(permit).await;
        let again = run_line(&server, &format!("revoke concurrency ann {id}"));
        assert_eq!((again.code, &*again.out), (Some(1), ""), "{again:?}");
    }
    assert!(!permits[2].is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_shorter_than_a_short_id_names_no_permit() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let _permit = granted(&store).await;
    let Id { whole, short } = ids(&server).remove(0);
    let process = whole.split('.').next().expect("a process");
    for text in [process, &short[..short.len() - 1], "x", ""] {
        let run = run_on(&server, &["revoke", "concurrency", "ann", text]);
        assert_eq!(run.code, Some(1), "{text:?}: {run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_permits_of_a_key_are_revoked_if_a_person_is_sure() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permits = [granted(&store).await, granted(&store).await];
    let unasked = run_line(&server, "revoke concurrency ann --all");
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(unasked.err.contains("--yes"));
    assert!(!permits[0].is_lost());
    let sure = run_line(&server, "--json revoke concurrency ann --all --yes");
    assert_eq!(sure.code, Some(0), "{sure:?}");
    for permit in &permits {
        assert_lost(permit).await;
    }
    let none = run_line(&server, "revoke concurrency ann --all --yes");
    assert_eq!(none.code, Some(1), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_revoked_by_its_id() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let claim = Claim::new("ann").with_limit(1);
    let _permit = store.acquire(claim.clone()).await.expect("there is room");
    let waiter = tokio::spawn(store.acquire(claim.with_wait(BOUND)));
    let mut id = None;
    let slot = &mut id;
    eventually("it waits", BOUND, async || {
        let usage = run_line(&server, "--json usage concurrency ann").out;
        let usage: Value = serde_json::from_str(&usage).expect("JSON");
        *slot = usage["waiting"][0]["id"].as_str().map(str::to_owned);
        slot.is_some()
    })
    .await;
    let run = run_on(
        &server,
        &["revoke", "concurrency", "ann", &id.expect("it waits")],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let refused = waiter.await.expect("no panic");
    assert!(matches!(refused, Err(AcquireError::Revoked)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_set_and_taken_away() {
    let server = RedisServer::start();
    assert_eq!(run_line(&server, "limits").code, Some(1));
    for (name, args) in [
        (
            "set-limit",
            "set-limit concurrency ann 3 --note stuck-exports",
        ),
        ("set-limit-all", "set-limit concurrency 20"),
    ] {
        let run = run_line(&server, args);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_golden(name, &run.out);
    }
    let store = store(&server).await;
    let claimed = async |key| store.acquire(Claim::new(key).with_limit(1)).await;
    let answers = (claimed("ann").await, claimed("bob").await);
    let (Ok(ann), Ok(bob)) = answers else {
        panic!("there is room: {answers:?}");
    };
    assert_eq!((ann.limit(), bob.limit()), (3, 20));

    let taken = parsed(&server, "set-limit concurrency ann default");
    let expected = json!({"policy": "concurrency", "key": "ann", "limit": null});
    assert_eq!(taken, [expected]);
    let all = run_line(&server, "set-limit concurrency default");
    assert_eq!(all.code, Some(0), "{all:?}");
    assert_eq!(run_line(&server, "limits").code, Some(1));
    for args in [
        "set-limit concurrency default",
        "set-limit concurrency ann default",
    ] {
        let again = run_line(&server, args);
        assert_eq!((again.code, &*again.out), (Some(1), ""), "{again:?}");
    }
}

/// The pause of the key `ann` in the output of `usage`, or null.
fn pause_of_ann(server: &RedisServer) -> Value {
    let usage = run_line(server, "--json usage concurrency ann").out;
    let usage: Value = serde_json::from_str(&usage).unwrap_or_default();
    usage["pause"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_paused_in_all_processes_until_it_is_resumed() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = granted(&store).await;
    let paused = run_line(&server, "pause concurrency ann 30m --note upstream-429");
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert_golden("pause", &paused.out);
    assert_eq!(pause_of_ann(&server)["note"], "upstream-429");

    let claim = Claim::new("ann").with_limit(5);
    let refused = store.acquire(claim.clone()).await;
    let Err(AcquireError::Paused { retry_after, .. }) = refused else {
        panic!("it is paused: {refused:?}");
    };
    let half_an_hour = Duration::from_secs(30 * 60);
    assert!(retry_after <= half_an_hour && retry_after + BOUND > half_an_hour);
    assert!(!held.is_lost());

    // Only a claim that can wait for longer than the pause joins the queue.
    let waiter = tokio::spawn(store.acquire(claim.with_wait(2 * half_an_hour)));
    let ann = || parsed(&server, "keys concurrency").remove(0);
    eventually("it waits", BOUND, async || ann()["waiting"] == 1).await;
    assert_eq!(
        (&ann()["units"], &ann()["pause"]),
        (&json!(1), &pause_of_ann(&server))
    );
    assert!(!waiter.is_finished());

    let resumed = run_line(&server, "resume concurrency ann");
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_golden("resume", &resumed.out);
    let granted = tokio::time::timeout(BOUND, waiter).await;
    let granted = granted.expect("the wait ends").expect("no panic");
    assert!(granted.is_ok(), "{granted:?}");
    assert_eq!(pause_of_ann(&server), Value::Null);
    let again = run_line(&server, "resume concurrency ann");
    assert_eq!((again.code, &*again.out), (Some(1), ""), "{again:?}");
}

#[test]
fn a_shorter_pause_leaves_the_longer_one_in_force() {
    let server = RedisServer::start();
    let long = parsed(&server, "pause concurrency ann 1h30m --note long").remove(0);
    let short = parsed(&server, "pause concurrency ann 250ms --note short").remove(0);
    assert_eq!(short, long);
    let expected = json!({"policy": "concurrency", "key": "ann", "pause": pause_of_ann(&server)});
    assert_eq!(long, expected);
    let [since, until] = ["since", "until"].map(|field| long["pause"][field].as_u64());
    assert_eq!(until, since.map(|since| since + 90 * 60 * 1_000));

    let longer = parsed(&server, "pause concurrency ann 31d").remove(0);
    assert!(longer["pause"]["until"].as_u64() > until, "{longer}");
    assert_eq!(longer["pause"]["note"], Value::Null);
    let resumed = parsed(&server, "resume concurrency ann");
    assert_eq!(
        resumed,
        [json!({"policy": "concurrency", "key": "ann", "pause": null})]
    );
}

#[tokio::test]
async fn a_paused_key_that_nobody_uses_is_listed_until_the_pause_ends() {
    let server = RedisServer::start();
    parsed(&server, "pause concurrency ann 1h");
    parsed(&server, "pause concurrency bob 250ms");
    eventually("bob is gone", BOUND, async || {
        run_line(&server, "usage concurrency bob").code == Some(1)
    })
    .await;
    let keys = parsed(&server, "keys concurrency");
    let ann = json!({"key": "ann", "units": 0, "waiting": 0, "pause": pause_of_ann(&server)});
    assert_eq!(keys, [ann]);
    parsed(&server, "resume concurrency ann");
    for args in ["keys concurrency", "top", "usage concurrency ann"] {
        assert_eq!(run_line(&server, args).code, Some(1), "{args}");
    }
}

#[test]
fn the_limit_of_a_long_key_is_taken_away_by_the_key_and_not_by_its_hash() {
    let server = RedisServer::start();
    // A key of more than 64 characters is long. The second has them only when it is percent-encoded.
    for long in ["k".repeat(100), "{".repeat(22)] {
        let set = run_line(&server, &format!("set-limit concurrency {long} 3"));
        assert_eq!(set.code, Some(0), "{set:?}");
        let listed = parsed(&server, "limits");
        let hash = listed[0]["hash"].as_str().expect("a hash");
        let by_hash = run_line(&server, &format!("set-limit concurrency #{hash} default"));
        assert_eq!(by_hash.code, Some(2), "{by_hash:?}");
        assert!(by_hash.err.contains("give the whole key"), "{by_hash:?}");
        let by_key = run_line(&server, &format!("set-limit concurrency {long} default"));
        assert_eq!(by_key.code, Some(0), "{by_key:?}");
        assert_eq!(run_line(&server, "limits").code, Some(1));
    }
}

#[tokio::test]
async fn limits_are_listed_for_programs_and_shown_with_the_usage() {
    let fleet = Fleet::start().await;
    for args in [
        "set-limit concurrency ann 3 --note stuck",
        "set-limit concurrency 20",
    ] {
        assert_eq!(run_line(&fleet.server, args).code, Some(0));
    }
    let values = parsed(&fleet.server, "limits");
    let [all, ann] = &values[..] else {
        panic!("two limits: {values:?}");
    };
    assert_eq!((&all["key"], &all["limit"]), (&Value::Null, &json!(20)));
    assert_eq!(
        (&ann["key"], &ann["note"]),
        (&json!("ann"), &json!("stuck"))
    );
    let usage = &parsed(&fleet.server, "usage concurrency ann")[0];
    assert_eq!(
        (&usage["limit"], &usage["limit_set"]),
        (&json!(3), &json!(true))
    );
    let shown = run_line(&fleet.server, "usage concurrency ann").out;
    assert!(
        shown.starts_with("concurrency ann: limit 3 (set), held 3"),
        "{shown}"
    );
}

#[tokio::test]
async fn limits_are_listed_with_who_set_them() {
    let mut fleet = Fleet::start().await;
    fleet.limit("concurrency", "20", "").await;
    // `carol: stuck exports`, encoded as in an id.
    fleet
        .limit("concurrency:ann", "3", "carol~3A~20stuck~20exports")
        .await;
    let run = run_line(&fleet.server, "limits");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_golden("limits", &run.out);
}
