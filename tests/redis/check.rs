//! The findings of a store about its server, when it connects and when `check` is called.
//!
//! Promises: P20.

use crate::managed::{assert_served_in_full, lacks};
use futures_util::FutureExt;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use testing::{
    causes::causes,
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::{join, runtime, time::sleep};
use tower_semaphore::{
    Claim, Operate, Policy, RedisSemaphore, Semaphore,
    redis::{ConnectError, Kind, Risk},
};

const BOUND: Duration = Duration::from_secs(20);

/// The commands that the module docs list.
fn documented() -> BTreeSet<String> {
    let docs = include_str!("../../src/redis/mod.rs");
    let (_, list) = docs.split_once("&PREFIX* ").expect("the list");
    let (list, _) = list.split_once('`').expect("its end");
    let words = list.split_whitespace().filter(|word| *word != "//!");
    let names = words.map(|word| word.strip_prefix('+').expect("a command"));
    names.map(str::to_owned).collect()
}

/// The rights that the module docs list for operators.
const OPERATORS_RIGHTS: &str = "zscan scan zcount hdel hexists hlen hmget hset";

/// The scripts that need more rights: those of operators, and those of claims with a window.
const OPTIONAL_SCRIPTS: [&str; 5] = [
    "usage.lua",
    "limits.lua",
    "pause.lua",
    "budget.lua",
    "refresh_budgets.lua",
];

/// The commands that the other scripts run.
fn scripted() -> BTreeSet<String> {
    commands(|path| !OPTIONAL_SCRIPTS.iter().any(|name| path.ends_with(name)))
}

/// The commands in the scripts that `is_meant` selects.
fn commands(is_meant: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let verbs = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/src/verbs");
    let files = fs::read_dir(verbs).expect("the scripts");
    let files = files.map(|file| file.expect("a file").path());
    let scripts =
        files.filter(|path| path.extension().is_some_and(|ext| ext == "lua") && is_meant(path));
    let scripts: String = scripts
        .map(|path| fs::read_to_string(path).expect("a script"))
        .collect();
    let calls = scripts.split("call('").skip(1);
    let names = calls.filter_map(|call| call.split_once('\'').map(|(name, _)| name));
    names.map(str::to_lowercase).collect()
}

/// Creates a user `shop` with these rights. Returns the result of connecting as that user.
async fn as_user(server: &RedisServer, rights: &str) -> Result<RedisSemaphore, ConnectError> {
    let mut raw = Raw::connect(server.port()).await;
    let user = format!("ACL SETUSER shop reset resetchannels on >secret {rights}");
    let set = raw.cmd(&user.split_whitespace().collect::<Vec<_>>()).await;
    assert!(set.error().is_none(), "{set:?}");
    let url = server.url_of("shop:secret");
    let builder = RedisSemaphore::builder().prefix("shop:");
    builder.connect(url).await
}

fn is_unavailable(error: &ConnectError) -> bool {
    error.kind() == Kind::Unavailable
}

/// True if an error ends with the right that the user lacks, for keys (`~`) or channels (`&`).
fn lacks_pattern(error: &ConnectError, pattern: &str) -> bool {
    error.kind() == Kind::Misconfigured
        && error.to_string().ends_with(&format!(": allow `{pattern}`"))
}

fn rights_for(commands: &BTreeSet<String>) -> String {
    commands.iter().map(|name| format!("+{name} ")).collect()
}

#[test]
fn the_documented_list_has_each_command_that_a_script_runs() {
    let documented = documented();
    let missing: Vec<_> = scripted().difference(&documented).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(scripted().contains("zremrangebyscore"));
}

/// The guide's command that creates a user.
fn guides_user() -> Vec<&'static str> {
    let guide = include_str!("../../src/guide/deploy.rs");
    let mut lines = guide.lines().map(|line| line.trim_start_matches("//! "));
    let line = lines.find(|line| line.starts_with("ACL SETUSER limits "));
    line.expect("the guide has it").split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guides_user_has_the_documented_rights_and_lacks_only_those_of_operators() {
    let command = guides_user();
    let named = command.iter().filter_map(|word| word.strip_prefix('+'));
    let mut expected = documented();
    expected.insert("info".to_owned());
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), expected);

    let server = RedisServer::start();
    let set = Raw::connect(server.port()).await.cmd(&command).await;
    assert!(set.error().is_none(), "{set:?}");
    let store = RedisSemaphore::connect(server.url_of("limits:PASSWORD")).await;
    let store = store.expect("a connection");
    let risks = store.check().await.expect("all is well");
    assert!(matches!(&risks[..], [Risk::NoOperate { .. }]), "{risks:?}");
}

/// Each right is missing alone. Everything else works, so the store still connects.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_only_operators_need_is_a_risk_that_names_it() {
    let server = RedisServer::start();
    let all = OPERATORS_RIGHTS.split_whitespace();
    for lacking in all.clone() {
        let rights = all.clone().filter(|right| *right != lacking);
        let rights: Vec<_> = rights.map(|right| format!("+{right}")).collect();
        let rights = format!(
            "~shop:* &shop:* +info {} {}",
            rights_for(&documented()),
            rights.join(" ")
        );
        let store = as_user(&server, &rights)
            .await
            .expect("claims need no such right");
        let risks = store.check().await.expect("it works");
        let [risk @ Risk::NoOperate { commands, .. }] = &risks[..] else {
            panic!("{lacking}: {risks:?}");
        };
        assert_eq!(*commands, [lacking.to_uppercase()]);
        assert!(
            risk.to_string()
                .contains(&format!("allow them (`+{lacking}`)")),
            "{risk}"
        );
    }
    let (policy, key) = (Policy::DEFAULT, "ann".into());
    let rights = format!("~shop:* &shop:* +info {}", rights_for(&documented()));
    let store = as_user(&server, &rights).await.expect("a connection");
    let usage = store
        .usage(&policy, &key)
        .await
        .expect_err("it needs ZSCAN");
    assert!(
        causes(&usage).contains("does not permit a command of this call, which `check` names"),
        "{}",
        causes(&usage)
    );
}

/// The rights of the guide's user, and the extra rights of an operator's user.
fn operators_rights() -> String {
    let guide = include_str!("../../src/guide/deploy.rs");
    let mut lines = guide.lines();
    let line = lines
        .find(|line| line.contains("Operate::set_limit`]("))
        .expect("the guide has it");
    let rights = line.rsplit('`').nth(1).expect("they are listed");
    format!("{}{rights}", rights_for(&documented()))
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_applications_need_only_the_rights_that_the_guide_lists() {
    let needed = commands(|path| path.ends_with("limits.lua"));
    let listed: BTreeSet<_> = operators_rights()
        .split_whitespace()
        .map(|right| right.trim_start_matches('+').to_owned())
        .collect();
    assert!(needed.is_subset(&listed), "{needed:?}");
    let server = RedisServer::start();
    let application = as_user(
        &server,
        &format!("~shop:* &shop:* {}", rights_for(&documented())),
    )
    .await;
    let application = application.expect("a connection");
    let (policy, key) = (Policy::DEFAULT, "ann".into());
    let set = application
        .set_limit(&policy, Some(&key), Some(1), "")
        .await;
    let error = set.expect_err("it may not");
    assert!(causes(&error).contains("can't run"), "{}", causes(&error));
    let mut raw = Raw::connect(server.port()).await;
    let rights = format!(
        "ACL SETUSER operator reset resetchannels on >secret ~shop:* &shop:* {}",
        operators_rights()
    );
    raw.cmd(&rights.split_whitespace().collect::<Vec<_>>())
        .await;
    let builder = RedisSemaphore::builder().prefix("shop:");
    let operator = builder
        .connect(server.url_of("operator:secret"))
        .await
        .expect("a connection");
    let set = operator.set_limit(&policy, Some(&key), Some(1), "").await;
    set.expect("it may");
    eventually("it is in force", BOUND, async || {
        let claim = Claim::new("ann").with_limit(9);
        let permit = application.acquire(claim).await;
        permit.is_ok_and(|permit| permit.limit() == 1)
    })
    .await;
    assert_served_in_full(&application, &mut raw, "shop:2:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_an_access_control_list_lacks_is_named() {
    let server = RedisServer::start();
    let all = documented();
    for lacking in &all {
        let mut rest = all.clone();
        rest.remove(lacking);
        let outcome = as_user(&server, &format!("~shop:* &shop:* {}", rights_for(&rest))).await;
        let error = outcome.expect_err("a right is missing");
        assert!(lacks(&error, &lacking.to_uppercase()), "{lacking}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_command_is_named_whatever_the_name_of_the_user() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    for user in ["monkey", "channels"] {
        let rights = ["on", ">secret", "~*", "&*", "+@all", "-zadd"];
        raw.cmd(&[&["ACL", "SETUSER", user][..], &rights].concat())
            .await;
        let url = server.url_of(&format!("{user}:secret"));
        let outcome = RedisSemaphore::connect(url).await;
        assert!(
            outcome.as_ref().is_err_and(|error| lacks(error, "ZADD")),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_no_writes_just_now_is_unavailable() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    let outcome = RedisSemaphore::connect(server.url()).await;
    assert!(
        outcome.as_ref().is_err_and(|error| is_unavailable(error) && causes(error).contains("ZREMRANGEBYSCORE")),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_channels_that_an_access_control_list_lacks_are_named() {
    let server = RedisServer::start();
    let rights = rights_for(&documented());
    let outcome = as_user(&server, &format!("~other:* &shop:* {rights}")).await;
    assert!(
        outcome
            .as_ref()
            .is_err_and(|error| lacks_pattern(error, "~shop:*")),
        "{outcome:?}"
    );
    let outcome = as_user(&server, &format!("~shop:* &other:* {rights}")).await;
    assert!(
        outcome
            .as_ref()
            .is_err_and(|error| lacks_pattern(error, "&shop:*")),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_documented_rights_is_served_in_full_and_with_all_rights_has_no_risk() {
    let server = RedisServer::start();
    let rights = format!("~shop:* &shop:* {}", rights_for(&documented()));
    let store = as_user(&server, &rights).await.expect("a connection");
    let risks = store.check().await.expect("all is well");
    assert!(
        matches!(&risks[..], [Risk::NoInfo, Risk::NoOperate { .. }]),
        "{risks:?}"
    );
    let mut raw = Raw::connect(server.port()).await;
    assert_served_in_full(&store, &mut raw, "shop:2:").await;
    let operators: String = OPERATORS_RIGHTS
        .split_whitespace()
        .map(|right| format!(" +{right}"))
        .collect();
    let store = as_user(&server, &format!("{rights} +info{operators}")).await;
    let store = store.expect("a connection");
    assert_eq!(store.check().await.expect("all is well"), []);
}

/// Keys of limits never expire, so only a policy for all keys can evict them.
#[tokio::test(flavor = "multi_thread")]
async fn eviction_is_a_risk_that_mentions_limits_only_if_they_may_be_evicted_too() {
    for (policy, names_limits) in [("volatile-lru", false), ("allkeys-lfu", true)] {
        let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
        let store = RedisSemaphore::connect(server.url())
            .await
            .expect("a connection");
        let risks = store.check().await.expect("it works");
        let names_policy =
            matches!(&risks[..], [Risk::Eviction { policy: own, .. }] if own == policy);
        let has_limits = risks[0].to_string().contains("the limits");
        assert!(names_policy && has_limits == names_limits, "{risks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_memory_is_full_has_no_risk() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let store = RedisSemaphore::connect(server.url()).await;
    assert_eq!(store.expect("a connection").check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_leaves_no_key() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    store.expect("a connection").check().await.unwrap();
    let mut raw = Raw::connect(server.port()).await;
    eventually("they have expired", BOUND, async || {
        format!("{:?}", raw.cmd(&["KEYS", "*check*"]).await) == "Array([])"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_check_reports_later_changes() {
    let mut server = RedisServer::start();
    let all = documented();
    let rights = format!("~shop:* &shop:* {}", rights_for(&all));
    let store = as_user(&server, &rights).await.expect("a connection");
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["ACL", "SETUSER", "shop", "-publish"]).await;
    let outcome = store.check().await;
    assert!(
        outcome.as_ref().is_err_and(|error| lacks(error, "PUBLISH")),
        "{outcome:?}"
    );
    server.kill();
    let outcome = store.check().await;
    assert!(outcome.as_ref().is_err_and(is_unavailable), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_checks_at_once_make_fewer_than_a_hundred_connections() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await.unwrap();
    let mut raw = Raw::connect(server.port()).await;
    let before = raw.stat("total_connections_received").await;
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let store = store.clone();
        checks.spawn(async move { store.check().await });
    }
    let answers = checks.join_all().await;
    let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let after = raw.stat("total_connections_received").await;
    assert!(
        failed.is_empty() && after - before < 100,
        "{} connections, {} failed, the first: {:?}",
        after - before,
        failed.len(),
        failed.first()
    );
}

/// The rights cover the keys of semaphores, but not all keys of the store itself.
#[tokio::test]
async fn an_access_control_list_without_the_keys_of_the_store_itself_is_found() {
    let server = RedisServer::start();
    for keys in [
        "~shop:2:{*",
        "~shop:2:{* ~shop:2:clock",
        "~shop:2:{* ~shop:2:processes",
        "~shop:2:{* ~shop:2:processes ~shop:2:clock",
    ] {
        let outcome = as_user(&server, &format!("{keys} &shop:* +@all")).await;
        assert!(
            outcome
                .as_ref()
                .is_err_and(|error| lacks_pattern(error, "~shop:*")),
            "{keys}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_key_of_another_type_blames_the_prefix() {
    for name in [
        "semaphore:2:processes",
        "semaphore:2:clock",
        "semaphore:2:limits{semaphore:2:processes}",
    ] {
        let server = RedisServer::start();
        let mut raw = Raw::connect(server.port()).await;
        raw.cmd(&["LPUSH", name, "mine"]).await;
        let outcome = RedisSemaphore::connect(server.url()).await;
        let error = outcome.expect_err("it is found");
        let text = causes(&error);
        assert!(
            error.setting() == Some("prefix") && text.contains(name),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_check_that_is_polled_only_once_fails_no_other_check() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let mut unfinished = Box::pin(store.check());
    assert!(
        (&mut unfinished).now_or_never().is_none(),
        "it is not answered"
    );
    for _ in 0..2 {
        let checked = store.check().await;
        assert!(checked.is_ok(), "{checked:?}");
    }
    let other = store.clone();
    let elsewhere = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(other.check())
    });
    let elsewhere = elsewhere.join().expect("it ends");
    assert!(elsewhere.is_ok(), "{elsewhere:?}");
    assert!(unfinished.await.is_ok());
}

/// The calls are made at various moments of a reconnect, which takes a tenth of a second: 0 to 115 ms after the cut.
#[tokio::test(flavor = "multi_thread")]
async fn after_connections_are_cut_checks_and_usage_are_answered_as_claims_are() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = RedisSemaphore::connect(proxy.url()).await;
    let store = store.expect("a connection");
    let (policy, key) = (Policy::DEFAULT, "a".into());
    for round in 0..24 {
        proxy.kill([End::Close, End::HalfClose, End::Reset][round % 3]);
        sleep(Duration::from_millis(5 * round as u64)).await;
        let claim = store.acquire(Claim::new("a").with_limit(5));
        let keys = store.keys_page(&policy, None, Duration::ZERO);
        let usage = store.usage(&policy, &key);
        let (claimed, checked, keys, usage) = join!(claim, store.check(), keys, usage);
        assert!(claimed.is_ok(), "{round}: {claimed:?}");
        assert!(checked.is_ok(), "{round}: {checked:?}");
        assert!(keys.is_ok(), "{round}: {keys:?}");
        assert!(usage.is_ok(), "{round}: {usage:?}");
    }
}

/// Each call fails with the error of the connection attempt, at any moment after the end, however long the timeout is.
#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_server_that_is_down_fail_at_once_with_the_reason() {
    let mut server = RedisServer::start();
    let (lease, timeout) = (Duration::from_secs(60), Duration::from_secs(20));
    let builder = RedisSemaphore::builder().lease(lease).timeout(timeout);
    let store = builder.connect(server.url()).await.expect("a connection");
    server.kill();
    for round in 0..12 {
        sleep(Duration::from_millis(10 * round)).await;
        let asked = Instant::now();
        let (policy, key) = (Policy::DEFAULT, "a".into());
        let (checked, usage) = join!(store.check(), store.usage(&policy, &key));
        let took = asked.elapsed();
        let checked = causes(&checked.expect_err("it is down"));
        let usage = causes(&usage.expect_err("it is down"));
        assert!(checked.contains("refused"), "{round}: {checked}");
        assert!(usage.contains("refused"), "{round}: {usage}");
        assert!(took < timeout / 10, "{round}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_window_without_an_append_only_file_is_a_risk() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = |window| Claim::new("a").with_limit(9).with_window(window);
    // Half an hour. Windows from an hour on are a risk.
    drop(store.acquire(claim(DAY / 48)).await.expect("there is room"));
    assert_eq!(store.check().await.expect("it works"), []);
    drop(store.acquire(claim(DAY)).await.expect("there is room"));
    let risks = store.check().await.expect("it works");
    assert!(matches!(&risks[..], [Risk::NoPersistence { window, .. }] if *window == DAY));
    assert!(risks[0].to_string().contains("within 24 h"), "{}", risks[0]);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "appendonly", "yes"]).await;
    assert_eq!(store.check().await.expect("it works"), []);
}

/// The documented rights of claims with a window, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn claims_with_a_window_need_three_more_rights() {
    let server = RedisServer::start();
    let claim = || {
        let claim = Claim::new("a").with_limit(9);
        claim.with_window(BOUND).with_estimate(2)
    };
    let rights = format!("~shop:* &shop:* {}", rights_for(&documented()));
    let store = as_user(&server, &rights).await.expect("it connects");
    let error = store
        .acquire(claim())
        .await
        .expect_err("a right is missing");
    assert!(!error.is_refusal(), "{error:?}");
    let store = as_user(&server, &format!("{rights} +hdel +hmget +hset")).await;
    let permit = store.expect("it connects").acquire(claim()).await;
    let permit = permit.expect("there is room");
    permit.settle(Policy::DEFAULT, 1);
    assert!(permit.release().await);
}
