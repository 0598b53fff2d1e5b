//! Servers with the restrictions of managed services.
//!
//! Promises: P20.

use std::time::Duration;
use testing::{monitor::Monitor, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{ConnectError, Kind},
    semaphore::{MAX_CLAIMS, MAX_UNITS, MAX_WEIGHT},
};

const BOUND: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(1);

/// Commands that ElastiCache, MemoryDB and similar services forbid.
const FORBIDDEN: &str = "ACL BGREWRITEAOF BGSAVE CONFIG DEBUG FAILOVER FLUSHALL KEYS MIGRATE MODULE PSYNC REPLICAOF \
                         SAVE SHUTDOWN SLAVEOF SYNC";

/// The most arguments that ElastiCache Serverless accepts in one request.
const MOST_ARGUMENTS: usize = 3_999;

fn claim(key: usize, limit: u32) -> Claim {
    Claim::new(key.to_string()).with_limit(limit)
}

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(server.url()).await.expect("a connection")
}

/// Asserts that every verb works: a refusal, a wait, a grant, a growth, a refresh and a release.
pub(crate) async fn assert_served_in_full(store: &RedisSemaphore, raw: &mut Raw, prefix: &str) {
    let [queue, held] = ["queue", "held"].map(|set| format!("{prefix}{{concurrency:1}}:{set}"));
    let permit = store.acquire(claim(1, 2)).await.expect("there is room");
    permit.resize(2).await.expect("there is room");
    let refused = store.acquire(claim(1, 2)).await;
    assert!(matches!(refused, Err(AcquireError::Full { .. })));
    let several = [claim(2, 2), claim(1, 2).with_wait(BOUND)];
    let waits = tokio::spawn(store.acquire_all(several.into()));
    eventually("it waits", BOUND, async || raw.zcard(&queue).await == 1).await;
    let end = raw.zmembers(&held).await[0].1;
    eventually("it is refreshed", BOUND, async || {
        raw.zmembers(&held).await[0].1 > end
    })
    .await;
    assert!(permit.release().await);
    let granted = waits.await.expect("no panic").expect("a grant");
    assert!(granted.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_commands_that_services_forbid_serves_in_full() {
    let forbidden = FORBIDDEN.split_whitespace();
    let renames: Vec<_> = forbidden
        .flat_map(|name| ["--rename-command", name, ""])
        .collect();
    let server = RedisServer::with(&renames);
    let mut raw = Raw::connect(server.port()).await;
    assert!(raw.cmd(&["CONFIG", "GET", "save"]).await.error().is_some());
    let store = store(&server).await;
    assert_eq!(store.check().await.expect("nothing is missing"), []);
    assert_served_in_full(&store, &mut raw, "semaphore:2:").await;
}

/// True if the error names this command as missing or forbidden, and the right that allows it.
pub(crate) fn lacks(error: &ConnectError, command: &str) -> bool {
    let right = command.to_lowercase();
    let text = format!("the server does not permit {command}: allow `+{right}`");
    error.kind() == Kind::Misconfigured && error.to_string().starts_with(&text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lacks_a_command_is_refused_with_its_name() {
    for name in ["EVAL", "EVALSHA", "ZRANGEBYSCORE"] {
        let server = RedisServer::with(&["--rename-command", name, ""]);
        let outcome = RedisSemaphore::connect(server.url()).await;
        assert!(
            outcome.as_ref().is_err_and(|error| lacks(error, name)),
            "{outcome:?}"
        );
    }
}

/// Acquires all of these at once. Each element is the claims of one permit.
async fn acquire_each(
    claims: impl IntoIterator<Item = Vec<Claim>>,
    store: &RedisSemaphore,
) -> Vec<Permit> {
    let mut acquiring = JoinSet::new();
    for claims in claims {
        acquiring.spawn(granted(claims, store.clone()));
    }
    let permits = timeout(BOUND, acquiring.join_all()).await;
    permits.expect("all are granted in time")
}

/// On a busy machine some claims are refused at first, because they could not be answered in time.
async fn granted(claims: Vec<Claim>, store: RedisSemaphore) -> Permit {
    loop {
        match store.acquire_all(claims.clone().into()).await {
            Ok(permit) => return permit,
            Err(AcquireError::Store { .. }) => sleep(LEASE / 10).await,
            Err(error) => panic!("there is room: {error:?}"),
        }
    }
}

/// Many light, heavy and many-level claims are made at once, so that calls become as large as possible. Then their
/// permits are refreshed and released.
#[tokio::test(flavor = "multi_thread")]
async fn calls_have_no_more_arguments_than_services_accept_and_name_every_key_that_they_use() {
    let server = RedisServer::start();
    // Large calls take long on a busy machine.
    let (lease, timeout) = (9 * LEASE, 3 * LEASE);
    let builder = RedisSemaphore::builder().lease(lease).timeout(timeout);
    let store = builder.connect(server.url()).await.expect("a connection");
    let mut raw = Raw::connect(server.port()).await;
    let mut monitor = Monitor::start(&server).await;
    let levels = |at: usize, count: usize| (0..count).map(move |level| claim(at + level, 1_000));
    let single = (0..200).map(|at| vec![claim(at, 1_000)]);
    let same = (0..200).map(|_| vec![claim(0, 1_000)]);
    let heavy = (0..6).map(|at| vec![claim(at + 9_000, MAX_WEIGHT).with_weight(MAX_WEIGHT)]);
    let wide = (0..40).map(|at| levels(at, 4).collect());
    let widest = (0..12).map(|at| levels(at, MAX_CLAIMS).collect());
    let with_quarter = |claim: Claim| claim.with_weight(MAX_UNITS / 4);
    let heavy_levels = (0..2).map(|at| levels(20_000 + 4 * at, 4).map(with_quarter).collect());
    let crowd = single
        .chain(same)
        .chain(heavy)
        .chain(heavy_levels)
        .chain(wide)
        .chain(widest);
    let permits = acquire_each(crowd, &store).await;
    // The first end of the lease that is seen; 0 before.
    let mut end = 0.0;
    eventually("they are refreshed", BOUND, async || {
        let now = raw.zmembers("semaphore:2:{concurrency:0}:held").await[0].1;
        let is_later = end > 0.0 && now > end;
        end = if end == 0.0 { now } else { end };
        is_later
    })
    .await;
    drop(permits);
    eventually("they are released", BOUND * 3, async || {
        raw.keys("semaphore:*:held").await.is_empty()
    })
    .await;

    let calls = monitor.calls(&mut raw).await;
    let most = calls.iter().map(|call| call.args.len()).max();
    // At least 500, or else the claims did not share calls and the test shows nothing.
    assert!(
        (500..=MOST_ARGUMENTS).contains(&most.unwrap_or(0)),
        "{most:?}"
    );
    for call in calls {
        let count: usize = call.args[2].parse().expect("a number of keys");
        let named = &call.args[3..3 + count];
        let used = call.commands.iter().flat_map(|command| match &*command[0] {
            "PUBLISH" => &[],
            "EXISTS" => &command[1..],
            _ => &command[1..command.len().min(2)],
        });
        let others = used.filter(|key| !named.contains(key));
        let others: Vec<_> = others.collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
