//! Against a real server.

use super::*;
use crate::{
    redis::{
        core::{Level, Refusal, Settings, Wait},
        driver::{Driver, Held, Refused},
        transport::Single,
    },
    semaphore::{Key, Policy},
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_secs(10);

fn driver(url: &str, lease: Duration) -> Driver<Wire> {
    let client = redis::Client::open(url).expect("a URL");
    let owner = Owner {
        process: "p1".into(),
        lease_ms: lease.as_millis() as u64,
        prefix: "s:".to_owned(),
        about: String::new(),
        parts: Vec::new(),
    };
    let wire = Wire::new(Arc::new(Single::new(client)), Arc::new(owner));
    let settings = Settings {
        lease,
        timeout: Duration::from_millis(250),
        slots_of_store: [0, 0],
        slot_of_process: None,
        claims: true,
        replicas: 0,
        is_own: true,
        policy: Default::default(),
    };
    Driver::start(wire, settings, drop)
}

/// The name of a semaphore.
fn name(key: &str) -> Arc<str> {
    crate::redis::protocol::name("s:", &Policy::DEFAULT, &Key::from(key))
}

fn level(key: &str, limit: u32) -> Level {
    Level {
        name: name(key),
        slot: 0,
        limit,
        weight: 1,
        wait: None,
        is_strict: false,
        label: None,
        flow: None,
    }
}

fn waiting(key: &str, limit: u32) -> Level {
    let wait = Wait {
        time: Duration::from_secs(20),
        max_waiting: 100,
        head_start: Duration::ZERO,
    };
    Level {
        wait: Some(wait),
        ..level(key, limit)
    }
}

async fn claim(driver: &Driver<Wire>, levels: Vec<Level>) -> Result<Held<Wire>, Refused> {
    let policies = vec![Policy::DEFAULT; levels.len()];
    driver.clone().acquire((levels, policies), |_| ()).await
}

async fn acquire(driver: &Driver<Wire>, level: Level) -> Held<Wire> {
    claim(driver, vec![level]).await.expect("a permit")
}

async fn refused(driver: &Driver<Wire>, level: Level) -> Refusal {
    match claim(driver, vec![level]).await {
        Err(Refused::By(refusal)) => refusal,
        Err(why) => panic!("{why:?}"),
        Ok(_) => panic!("it is granted"),
    }
}

/// What a caller would be told.
fn cause(driver: &Driver<Wire>) -> Error {
    let cause = driver.error(0).expect("something went wrong");
    cause.downcast_ref::<Error>().expect("our own").clone()
}

async fn started() -> (RedisServer, Raw, Driver<Wire>) {
    let server = RedisServer::start();
    let raw = Raw::connect(server.port()).await;
    let driver = driver(&server.url(), LEASE);
    (server, raw, driver)
}

async fn until_empty(raw: &mut Raw, key: &str) {
    let held = format!("{}:held", name(key));
    eventually("all is released", BOUND, async || {
        raw.zcard(&held).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_permit_is_granted_held_refused_to_others_and_released() {
    let (_server, mut raw, driver) = started().await;
    let held = acquire(&driver, level("a", 1)).await;
    assert!(!held.is_lost() && held.token(0) > 0 && held.held(0) == (1, 1));
    let members = raw.zmembers(format!("{}:held", name("a"))).await;
    let id = String::from_utf8_lossy(&members[0].0).into_owned();
    assert!(id.starts_with("p1.1.1.1.10000."), "{id}");
    assert_eq!(
        refused(&driver, level("a", 1)).await,
        Refusal::Full(0, 1, 1)
    );
    assert!(held.release().await);
    drop(acquire(&driver, level("a", 1)).await);
    until_empty(&mut raw, "a").await;
}

#[tokio::test]
async fn several_levels_and_units_are_granted_together_and_labels_are_written() {
    let (_server, mut raw, driver) = started().await;
    let heavy = Level {
        weight: 3,
        label: Some("GET /".into()),
        ..level("b", 5)
    };
    let held = claim(&driver, vec![level("a", 1), heavy]).await;
    let held = held.unwrap_or_else(|why| panic!("{why:?}"));
    assert_eq!([0, 1].map(|level| held.held(level)), [(1, 1), (3, 5)]);
    let members = raw.zmembers(format!("{}:held", name("b"))).await;
    let ids = members.iter().map(|(id, _)| String::from_utf8_lossy(id));
    let mut ends: Vec<_> = ids
        .map(|id| id.split('.').nth(6).map(str::to_owned))
        .collect();
    ends.sort();
    let ends: Vec<_> = ends.iter().flatten().map(String::as_str).collect();
    assert_eq!(ends, ["GET~20~2F", "GET~20~2F:2", "GET~20~2F:3"]);
    drop(held);
    until_empty(&mut raw, "a").await;
    until_empty(&mut raw, "b").await;
}

/// Long before the waiter polls.
#[tokio::test]
async fn a_waiter_is_granted_by_a_message() {
    let (_server, mut raw, driver) = started().await;
    for round in 0..5 {
        let held = acquire(&driver, level("a", 1)).await;
        let waiter = tokio::spawn({
            let driver = driver.clone();
            async move { acquire(&driver, waiting("a", 1)).await }
        });
        let queue = format!("{}:queue", name("a"));
        eventually("it waits", BOUND, async || raw.zcard(&queue).await == 1).await;
        let (token, since) = (held.token(0), Instant::now());
        drop(held);
        let granted = timeout(SECOND, waiter)
            .await
            .expect("a message")
            .expect("no panic");
        assert!(granted.token(0) > token);
        assert!(
            since.elapsed() < SECOND / 3,
            "{round}: {:?}",
            since.elapsed()
        );
        assert!(granted.release().await);
    }
}

#[tokio::test]
async fn a_lease_is_refreshed_for_as_long_as_it_is_held() {
    let server = RedisServer::start();
    let driver = driver(&server.url(), Duration::from_millis(900));
    let held = acquire(&driver, level("a", 1)).await;
    sleep(SECOND * 3).await;
    assert!(!held.is_lost() && held.release().await);
}

#[tokio::test]
async fn a_server_that_starts_again_grants_again() {
    let (mut server, _, driver) = started().await;
    let held = acquire(&driver, level("a", 1)).await;
    server.kill();
    eventually("claims fail", BOUND, async || {
        claim(&driver, vec![level("b", 1)]).await.is_err()
    })
    .await;
    assert_eq!(
        refused(&driver, level("b", 1)).await,
        Refusal::Unavailable(0)
    );
    eventually("connecting fails", BOUND, async || {
        matches!(cause(&driver), Error::Unavailable(_))
    })
    .await;
    server.restart();
    eventually("claims are granted", BOUND, async || {
        claim(&driver, vec![level("b", 9)]).await.is_ok()
    })
    .await;
    let mut raw = Raw::connect(server.port()).await;
    let units = format!("{}:held", name("a"));
    eventually("what was held is back", BOUND, async || {
        raw.zcard(&units).await == 1
    })
    .await;
    assert!(!held.is_lost());
    assert!(driver.error(0).is_none());
}

/// While 16 tasks claim.
#[tokio::test]
async fn a_server_that_forgets_its_scripts_fails_no_claim() {
    let (_server, mut raw, driver) = started().await;
    let tasks = (0..16).map(|task| {
        let driver = driver.clone();
        tokio::spawn(async move {
            for _ in 0..200 {
                let held = acquire(&driver, level(&format!("k{task}"), 1)).await;
                assert!(held.release().await);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        raw.cmd(&["SCRIPT", "FLUSH"]).await;
        sleep(Duration::from_millis(10)).await;
    }
    for task in tasks {
        task.await.expect("no claim fails");
    }
    assert!(driver.error(0).is_none());
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_repeated() {
    let (server, mut raw, _) = started().await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "right"]).await;
    let url = server.url().replacen("//", "//:qwerty@", 1);
    let driver = driver(&url, LEASE);
    assert_eq!(refused(&driver, level("a", 1)).await, Refusal::Failed(0));
    let error = cause(&driver);
    let said = format!("{error} {error:?}");
    assert!(matches!(error, Error::Unavailable(_)), "{said}");
    assert!(
        said.contains("WRONGPASS") && !said.contains("qwerty"),
        "{said}"
    );
}

#[tokio::test]
async fn an_error_of_one_key_is_told_and_ends_no_connection() {
    let (_server, mut raw, driver) = started().await;
    let held = acquire(&driver, level("b", 1)).await;
    raw.cmd(&["SET", &format!("{}:held", name("a")), "x"]).await;
    assert_eq!(refused(&driver, level("a", 1)).await, Refusal::Failed(0));
    let Error::Redis(error) = cause(&driver) else {
        panic!("{:?}", cause(&driver));
    };
    assert_eq!(error.code(), Some("WRONGTYPE"));
    drop(acquire(&driver, level("c", 1)).await);
    assert!(!held.is_lost());
}

#[tokio::test]
async fn connections_that_are_cut_are_made_again() {
    let (_server, mut raw, driver) = started().await;
    for kind in ["normal", "pubsub"] {
        for _ in 0..3 {
            drop(acquire(&driver, level("a", 100)).await);
            raw.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
                .await;
            // At the second try at the latest.
            drop(acquire(&driver, level("a", 100)).await);
        }
        sleep(SECOND / 2).await;
    }
    let held = acquire(&driver, level("b", 1)).await;
    let own = driver.clone();
    let waiter = tokio::spawn(async move { claim(&own, vec![waiting("b", 1)]).await });

    let queue = format!("{}:queue", name("b"));
    eventually("it waits", BOUND, async || raw.zcard(&queue).await == 1).await;
    drop(held);
    let granted = timeout(SECOND / 3, waiter).await.expect("a message");
    assert!(granted.expect("no panic").is_ok());
}

/// Its connections stay open, and are of no use when it is another one.
#[tokio::test]
async fn a_silent_server_is_told_as_such_within_the_budget() {
    let (server, _, driver) = started().await;
    drop(acquire(&driver, level("a", 1)).await);
    server.stop();
    let since = Instant::now();
    assert_eq!(
        refused(&driver, level("a", 1)).await,
        Refusal::Unavailable(0)
    );
    assert!(
        since.elapsed() < Duration::from_millis(700),
        "{:?}",
        since.elapsed()
    );
    assert!(
        matches!(cause(&driver), Error::Timeout(_)),
        "{:?}",
        cause(&driver)
    );
    server.cont();
    eventually("claims are granted", BOUND, async || {
        claim(&driver, vec![level("b", 9)]).await.is_ok()
    })
    .await;
}
