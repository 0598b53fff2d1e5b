//! Users and passwords that a function returns for each connection.
//!
//! Promises: P18, P20.

use super::{BOUND, assert_works, causes, claim};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{redis::RedisServer, resp::Raw, stores::connected, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{Builder, Credentials, Kind},
};

/// A different password for each number.
fn password(number: usize) -> String {
    format!("battery-staple-{number}")
}

async fn run(raw: &mut Raw, command: &str) {
    let command: Vec<_> = command.split(' ').collect();
    assert_eq!(raw.cmd(&command).await.text(), "OK", "{command:?}");
}

/// A builder that logs in as `ann` with the password of the current number.
fn builder(number: &Arc<AtomicUsize>) -> Builder {
    let number = Arc::clone(number);
    let provide = move || {
        let number = Arc::clone(&number);
        // Takes a moment, as a token from the network does.
        async move {
            sleep(Duration::from_millis(5)).await;
            Ok::<_, std::io::Error>(Credentials::new("ann", password(number.load(Relaxed))))
        }
    };
    let builder = RedisSemaphore::builder().credentials(provide);
    builder.timeout(Duration::from_secs(2))
}

/// A server whose only user is `ann`, with the password of this number.
async fn protected(number: usize) -> (RedisServer, Raw) {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let own = password(number);
    run(&mut raw, &format!("ACL SETUSER ann on >{own} ~* &* +@all")).await;
    run(&mut raw, "ACL SETUSER default off").await;
    (server, raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_go_on_while_the_password_is_rotated_and_connections_end() {
    let (server, mut raw) = protected(0).await;
    let number = Arc::new(AtomicUsize::new(0));
    let builder = builder(&number);
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let held = store.acquire(Claim::new("held").with_limit(1)).await;
    let held = held.expect("there is room");
    let is_over = Arc::new(AtomicBool::new(false));
    let claims = tokio::spawn({
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        async move {
            let mut errors = String::new();
            while !is_over.load(Relaxed) {
                if let Err(error) = store.acquire(claim()).await {
                    errors += &causes(&error);
                }
                sleep(Duration::from_millis(2)).await;
            }
            errors
        }
    });
    for next in 1..=5 {
        run(&mut raw, &format!("ACL SETUSER ann >{}", password(next))).await;
        number.store(next, Relaxed);
        // The previous password stays valid for a round, because a connection may be about to log in with it.
        if let Some(old) = next.checked_sub(2) {
            run(&mut raw, &format!("ACL SETUSER ann <{}", password(old))).await;
        }
        raw.cmd(&["CLIENT", "KILL", "USER", "ann"]).await;
        eventually("it serves again", BOUND, async || {
            store.acquire(claim()).await.is_ok()
        })
        .await;
        // The subscription is restored as well.
        eventually("it subscribes again", BOUND, async || {
            let clients = raw.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
            clients.text().contains("user=ann")
        })
        .await;
    }
    is_over.store(true, Relaxed);
    let errors = claims.await.expect("no panic");
    // On a busy machine a claim may fail when its connection ends, but none may fail because of its password.
    let is_refused = errors.contains("WRONGPASS") || errors.contains("NOAUTH");
    assert!(!is_refused && !errors.contains("staple"), "{errors}");
    assert!(!held.is_lost() && held.release().await);
}

/// A store has at least three connections: its runtime's, the keeper's, and one for messages.
#[tokio::test(flavor = "multi_thread")]
async fn each_connection_gets_credentials_once() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let before = raw.stat("total_connections_received").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let store = RedisSemaphore::builder().credentials(move || {
        count.fetch_add(1, Relaxed);
        async { Ok::<_, std::io::Error>(Credentials::new("default", "any")) }
    });
    let store = connected(async || store.clone().connect(server.url()).await).await;
    assert_works(&store).await;
    eventually("each is counted", BOUND, async || {
        let made = raw.stat("total_connections_received").await - before;
        made > 2 && made == calls.load(Relaxed) as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_replace_those_of_the_url() {
    let (server, _raw) = protected(7).await;
    let builder = builder(&Arc::new(AtomicUsize::new(7)));
    let url = server.url_of("bob:wrong");
    assert_works(&connected(async || builder.clone().connect(&url).await).await).await;
    let fixed = RedisSemaphore::builder().fixed_credentials("ann", password(7));
    assert_works(&connected(async || fixed.clone().connect(&url).await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_refused_names_the_setting_and_not_the_password() {
    let (server, mut raw) = protected(1).await;
    let number = Arc::new(AtomicUsize::new(2));
    let refused = async || {
        let outcome = builder(&number).connect(server.url()).await;
        let error = outcome.expect_err("the password is wrong");
        assert_eq!(error.kind(), Kind::Misconfigured, "{error:?}");
        let text = format!("{} {error:?} {:?}", causes(&error), builder(&number));
        assert!(!text.contains("staple"), "{text}");
        error.setting()
    };
    assert_eq!(refused().await, Some("credentials"));
    // The same holds for a store that has worked, and for its check.
    number.store(1, Relaxed);
    let builder = builder(&number);
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    run(&mut raw, "ACL SETUSER ann resetpass").await;
    raw.cmd(&["CLIENT", "KILL", "USER", "ann"]).await;
    eventually("the check names it", BOUND, async || {
        let checked = store.check().await;
        assert!(!format!("{checked:?}").contains("staple"), "{checked:?}");
        checked.is_err_and(|error| {
            (error.kind(), error.setting()) == (Kind::Misconfigured, Some("credentials"))
        })
    })
    .await;
}

#[test]
fn a_password_is_in_no_debug_output() {
    let credentials = Credentials::new("ann", "battery-staple");
    assert_eq!(
        format!("{credentials:?}"),
        "Credentials { user: \"ann\", .. }"
    );
    let builder = RedisSemaphore::builder().fixed_credentials("ann", "battery-staple");
    assert!(!format!("{builder:?}").contains("staple"));
}
