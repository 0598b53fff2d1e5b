//! The traffic between store and server, by the server's own count.
//!
//! Promises: P6.

use std::{collections::BTreeMap, time::Duration};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// The number of script calls that clients have sent. The library sends only scripts, and the server counts the
/// commands inside them separately.
fn sent(stats: &BTreeMap<String, u64>) -> u64 {
    let count = |name: &str| stats.get(name).copied().unwrap_or_default();
    count("evalsha") + count("eval")
}

/// A connected store, after the server has loaded its scripts. The server's counts have been reset.
async fn warm(server: &RedisServer, lease: Duration) -> (RedisSemaphore, Raw) {
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("it connects");
    for _ in 0..2 {
        let permit = store.acquire(claim(0)).await.expect("there is room");
        assert!(permit.release().await);
    }
    let mut raw = Raw::connect(server.port()).await;
    raw.reset_stats().await;
    (store, raw)
}

fn claim(key: u64) -> Claim {
    Claim::new(key).with_limit(1)
}

/// The server's counts of the cheapest of several rounds. A busy machine adds calls: the keeper refreshes after a
/// stall, and a call without an answer is sent again.
async fn cheapest(raw: &mut Raw, work: impl AsyncFn()) -> BTreeMap<String, u64> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        raw.reset_stats().await;
        work().await;
        rounds.push(raw.commandstats().await);
    }
    let cheapest = rounds.into_iter().min_by_key(sent);
    cheapest.expect("there are rounds")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_request_costs_two_commands_and_a_refused_one_costs_one() {
    let server = RedisServer::start();
    let (store, mut raw) = warm(&server, Duration::from_secs(60)).await;
    let admitted = async || {
        for _ in 0..100 {
            let permit = store.acquire(claim(1)).await.expect("there is room");
            permit.release().await;
        }
    };
    assert_eq!(sent(&cheapest(&mut raw, admitted).await), 200);

    let _held = store.acquire(claim(1)).await.expect("there is room");
    // This first claim may take an extra call, because a release was answered only just now.
    assert!(store.acquire(claim(1)).await.is_err());
    let refused = async || {
        for _ in 0..100 {
            assert!(store.acquire(claim(1)).await.is_err());
        }
    };
    let stats = cheapest(&mut raw, refused).await;
    assert_eq!(sent(&stats), 100);
    assert_eq!(stats.get("script|load"), None, "{stats:?}");
    assert_eq!(
        stats.get("time"),
        Some(&100),
        "more than one TIME: {stats:?}"
    );
}

/// An interval has sixteen ticks, and each tick sends its refreshes in one command. The others announce the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_permits_of_a_hundred_keys_cost_eighteen_commands_a_refresh_interval() {
    let lease = Duration::from_millis(3_000);
    let server = RedisServer::start();
    let (store, mut raw) = warm(&server, lease).await;
    let mut permits: Vec<Permit> = Vec::new();
    for i in 0..1_000_u64 {
        let claim = Claim::new(1 + i % 100).with_limit(10);
        permits.push(store.acquire(claim).await.expect("there is room"));
        // Spread the permits over a whole interval, however fast the machine is.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // During this sleep the keeper subscribes to revocations, and then refreshes all permits once more.
    tokio::time::sleep(lease).await;
    raw.reset_stats().await;
    let intervals = 4;
    tokio::time::sleep(lease / 3 * intervals).await;
    let sent = sent(&raw.commandstats().await);
    // The measured time may include one more refresh at either end.
    let (least, most) = (18 * u64::from(intervals - 1), 18 * u64::from(intervals + 1));
    assert!(
        (least..=most).contains(&sent),
        "{sent} commands in {intervals} intervals"
    );
    assert!(!permits.iter().any(Permit::is_lost));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_has_two_keys_whose_time_to_live_its_refreshes_prolong() {
    let server = RedisServer::start();
    let (store, mut raw) = warm(&server, Duration::from_secs(3)).await;
    let _permit = store.acquire(claim(7)).await.expect("there is room");
    let keys = raw.keys("semaphore:2:{concurrency:7}*").await;
    assert_eq!(keys.len(), 2, "{keys:?}");
    // At least the lease of 3 s, and at most eight leases, to which the scripts extend it.
    for key in &keys {
        let ttl = raw.cmd(&[b"PTTL", &key[..]]).await.int();
        assert!((3_000..=24_000).contains(&ttl), "{ttl} ms");
        raw.cmd(&[b"PEXPIRE", &key[..], b"12000"]).await;
    }
    for key in keys {
        eventually("it is prolonged", Duration::from_secs(10), async || {
            raw.cmd(&[b"PTTL", &key[..]]).await.int() > 18_000
        })
        .await;
    }
}
