//! Fair queues on one server: their storage, their cost, and their order across processes.
//!
//! Promises: P12, P16.

use crate::queue::queued;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use testing::{
    fleet::Process,
    monitor::{Call, Monitor},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::task::JoinSet;
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(30);
/// Under a lease of this length, waiters poll only every 5 s.
const LEASE: Duration = Duration::from_secs(600);
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const ALIVE: &str = "semaphore:2:{concurrency:a}:alive";

async fn start() -> (RedisServer, Raw, RedisSemaphore) {
    let server = RedisServer::start();
    let raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(BOUND / 4);
    let store = builder.connect(server.url()).await.expect("it connects");
    (server, raw, store)
}

fn claim_of(flow: &str) -> Claim {
    Claim::new("a")
        .with_limit(1)
        .with_flow(flow)
        .with_wait(BOUND * 4)
        .with_max_waiting(1_000)
}

/// A permit that fills the key, so that later claims wait.
async fn held(store: &RedisSemaphore) -> Permit {
    let claim = Claim::new("a").with_limit(1).with_wait(BOUND);
    store.acquire(claim).await.expect("there is room soon")
}

/// Tasks that each wait for a grant, release it, and return the claim's name and token.
type Granted = JoinSet<(String, u64)>;

async fn join(store: &RedisSemaphore, granted: &mut Granted, (name, claim): (&str, Claim)) {
    let (name, acquire) = (name.to_owned(), store.acquire(claim));
    granted.spawn(async move {
        let permit = acquire.await.expect("it is granted");
        let token = permit.token().expect("it is granted");
        assert!(permit.release().await);
        (name, token)
    });
}

/// The names of the claims in the order of their tokens.
async fn order(granted: Granted) -> Vec<String> {
    let mut granted = granted.join_all().await;
    granted.sort_by_key(|(_, token)| *token);
    granted.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_the_second_grant_although_a_thousand_waiters_of_one_flow_fill_the_queue() {
    let (_server, mut raw, store) = start().await;
    let held = held(&store).await;
    let mut granted = JoinSet::new();
    for _ in 0..1_000 {
        join(&store, &mut granted, ("ann", claim_of("ann"))).await;
    }
    queued(&mut raw, 1_000).await;
    let full = store.acquire(claim_of("ann")).await;
    assert!(
        matches!(full, Err(AcquireError::QueueFull { .. })),
        "{full:?}"
    );
    for (count, flow) in [(1_001, "bob"), (1_002, "cid"), (1_003, "bob")] {
        join(&store, &mut granted, (flow, claim_of(flow))).await;
        queued(&mut raw, count).await;
    }
    assert!(held.release().await);
    let order = order(granted).await;
    assert_eq!(order[..6], ["ann", "bob", "cid", "ann", "bob", "ann"]);
    assert_eq!(order.len(), 1_003);
    let none_left = async || raw.keys("*:queue").await.len() + raw.keys("*:alive").await.len() == 0;
    eventually("the flows' tags end with the queue", BOUND, none_left).await;
}

/// The ids of permits and waiters in a call: the only arguments with more than three dots.
fn ids(call: &Call) -> Vec<&str> {
    let args = call.args[2..].iter().map(String::as_str);
    args.filter(|arg| arg.split('.').count() > 4).collect()
}

/// The order of the grants to fifty contenders. Also checks the 101 calls that name the queue: a claim and a release
/// for each contender, and the release of the first permit. A release may be sent twice only after a poll: if the claim
/// was granted before that poll was answered.
async fn contend(flows: Option<[&str; 5]>) -> Vec<String> {
    let (server, mut raw, store) = start().await;
    let mut processes: Vec<_> = (0..4)
        .map(|_| Process::start(&server.url(), LEASE))
        .collect();
    let held = held(&store).await;
    let mut monitor = Monitor::start(&server).await;
    for number in 0..50 {
        let process = &mut processes[number % 4];
        // The ten claims of a flow arrive together, one flow after the other.
        let flow = flows.map(|flows| flows[number / 10]);
        let name = format!("{}-{number}", flow.unwrap_or("none"));
        process.contend(flow, &name, "a", 1);
        queued(&mut raw, number + 1).await;
    }
    assert!(held.release().await);
    let granted = processes.iter_mut().flat_map(Process::contended);
    let granted: BTreeMap<_, _> = granted.map(|(name, token)| (token, name)).collect();
    let calls = monitor.calls(&mut raw).await;
    let (polls, calls): (Vec<_>, Vec<_>) = calls
        .iter()
        .filter(|call| call.names(QUEUE))
        .partition(|call| call.is_poll());
    assert!(
        polls.len() <= 4,
        "more than one for each process: {polls:?}"
    );
    // A claim's terms are one argument of several words. The second argument, the script or its hash, does not count.
    let claims = |call: &Call| call.args[2..].iter().any(|arg| arg.contains(' '));
    let sent = calls.iter().map(|call| (claims(call), ids(call)));
    let sent: BTreeSet<_> = sent.collect();
    assert_eq!(sent.len(), 101, "{sent:?}");
    assert!(calls.len() == sent.len() || !polls.is_empty());
    granted.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_contenders_of_five_flows_in_four_processes_take_turns_without_extra_commands() {
    let flows = ["ann", "bob", "cid", "dot", "eve"];
    let order = contend(Some(flows)).await;
    // Flows take turns, and each flow keeps the order of its claims.
    let turns = (0..10).flat_map(|turn| (0..5).map(move |flow| (flow, flow * 10 + turn)));
    let expected: Vec<_> = turns
        .map(|(flow, number)| format!("{}-{number}", flows[flow]))
        .collect();
    assert_eq!(order, expected);
    let order = contend(None).await;
    let expected: Vec<_> = (0..50).map(|number| format!("none-{number}")).collect();
    assert_eq!(order, expected);
}

fn names(members: Vec<(Vec<u8>, f64)>) -> Vec<String> {
    let names = members.into_iter();
    let names = names.map(|(name, _)| String::from_utf8_lossy(&name).into_owned());
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_without_flows_stores_its_waiters_and_nothing_else() {
    let (_server, mut raw, store) = start().await;
    let held = held(&store).await;
    let mut granted = JoinSet::new();
    let plain = Claim::new("a").with_limit(1).with_wait(BOUND);
    for count in 1..=3 {
        join(&store, &mut granted, ("none", plain.clone())).await;
        queued(&mut raw, count).await;
    }
    let mut alive = names(raw.zmembers(ALIVE).await);
    let mut waiting = names(raw.zmembers(QUEUE).await);
    alive.sort_unstable();
    waiting.sort_unstable();
    assert_eq!(alive, waiting);
    assert!(waiting.iter().all(|id| !id.contains('~')), "{waiting:?}");
    drop(held);
    assert_eq!(order(granted).await.len(), 3);
}

/// The queue is never empty during this test. In a fair queue, the key `alive` also has a tag for each flow: its member
/// is `flow:FLOW`.
#[tokio::test(flavor = "multi_thread")]
async fn the_tags_of_flows_that_come_and_go_are_forgotten() {
    let (_server, mut raw, store) = start().await;
    let mut held = held(&store).await;
    let wait = |flow: &str| tokio::spawn(store.acquire(claim_of(flow).with_share(100)));
    let mut always = wait("always");
    queued(&mut raw, 1).await;
    for number in 0..50 {
        let other = wait(&format!("flow-{number}"));
        queued(&mut raw, 2).await;
        let next = wait("always");
        queued(&mut raw, 3).await;
        for waiter in [always, other] {
            assert!(held.release().await);
            held = waiter.await.expect("no panic").expect("it is granted");
        }
        always = next;
        let tags = names(raw.zmembers(ALIVE).await);
        let flows = tags.iter().filter(|name| name.starts_with("flow:"));
        assert!(flows.count() <= 4, "{tags:?}");
    }
    drop(held);
    drop(always.await.expect("no panic").expect("it is granted"));
}

/// The key may be evicted, or expire because no waiter polls. Heavy claims have moved its scores ahead of the clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_key_was_deleted_starts_again_from_the_clock() {
    const HEAD_START: Duration = Duration::from_millis(300);
    let (_server, mut raw, store) = start().await;
    let heavy = claim_of("ann").with_limit(1_000).with_weight(1_000);
    let held = store.acquire(heavy.clone()).await.expect("there is room");
    let mut waiters = Vec::new();
    for count in 1..=3 {
        waiters.push(tokio::spawn(store.acquire(heavy.clone())));
        queued(&mut raw, count).await;
    }
    drop(held);
    queued(&mut raw, 2).await;
    waiters.push(tokio::spawn(store.acquire(heavy)));
    queued(&mut raw, 3).await;
    raw.cmd(&["DEL", QUEUE]).await;

    let plain = Claim::new("a").with_limit(1).with_wait(BOUND);
    let plain = |label| plain.clone().with_label(label);
    waiters.push(tokio::spawn(store.acquire(plain("batch"))));
    queued(&mut raw, 1).await;
    // The sleep is the point of this test, which is about elapsed time.
    tokio::time::sleep(HEAD_START * 2).await;
    let interactive = plain("interactive").with_head_start(HEAD_START);
    waiters.push(tokio::spawn(store.acquire(interactive)));
    queued(&mut raw, 2).await;
    let waiting = names(raw.zmembers(QUEUE).await);
    assert!(waiting[0].ends_with("batch"), "{waiting:?}");
}
