//! The error about a wrong setting names that setting.
//!
//! Promises: P20.

use crate::{process, soon};
use std::process::Stdio;
#[cfg(feature = "redis")]
use testing::{redis::RedisServer, resp::Raw};

const WRONG: [(&str, &str); 18] = [
    ("PORT", "http"),
    ("PORT", "65536"),
    ("PORT", ""),
    ("LIMIT", "0"),
    ("LIMIT", "-1"),
    ("LIMIT", "4294967296"),
    ("LEASE_MS", "0"),
    ("LEASE_MS", "99"),
    ("LEASE_MS", "10s"),
    ("WAIT_MS", "soon"),
    ("MAX_STALL_MS", "0"),
    ("MAX_STALL_MS", ""),
    ("SHADOW", "yes"),
    ("WHEN_UNAVAILABLE", "perhaps"),
    ("REDIS_URL", ""),
    ("REDIS_URL", "mysql://ann:open-sesame@127.0.0.1/"),
    ("REDIS_URL", "redis://:open-sesame@127.0.0.1:port/"),
    ("REDIS_URL", "redis://:open-sesame@127.0.0.1:1/"),
];

#[tokio::test]
async fn a_wrong_setting_is_named_and_nothing_starts() {
    for (name, value) in WRONG {
        assert_named(name, &[(name, value)]).await;
    }
}

/// Settings whose last entry conflicts with the others.
const WRONG_TOGETHER: [&[(&str, &str)]; 10] = [
    &[
        ("REDIS_URL", "redis://127.0.0.1:1/"),
        ("REDIS_CLUSTER", "127.0.0.1:1"),
    ],
    &[
        ("REDIS_SENTINEL_NAME", "shop"),
        ("REDIS_CLUSTER", "127.0.0.1:1"),
        ("REDIS_SENTINELS", "127.0.0.1:1"),
    ],
    &[
        ("REDIS_SENTINELS", "127.0.0.1:1"),
        ("REDIS_SENTINEL_NAME", ""),
    ],
    &[("REDIS_SENTINEL_NAME", "shop")],
    &[
        ("REDIS_URL", "redis://127.0.0.1:1/"),
        ("REDIS_SENTINEL_NAME", "shop"),
    ],
    &[("REDIS_CLUSTER", "")],
    &[("REDIS_CLUSTER", "127.0.0.1:1,")],
    &[("REDIS_CLUSTER", "redis://:open-sesame@127.0.0.1:1/")],
    &[
        ("REDIS_URL", "redis://:open-sesame@127.0.0.1:1/"),
        ("REDIS_CA", "Cargo.toml"),
    ],
    &[
        ("REDIS_URL", "rediss://127.0.0.1:1/"),
        ("REDIS_CA", "no/such.pem"),
    ],
];

#[tokio::test]
async fn settings_that_do_not_go_together_are_named_and_nothing_starts() {
    for settings in WRONG_TOGETHER {
        let (name, _) = settings.last().expect("there is one");
        assert_named(name, settings).await;
    }
    // Here a missing setting is at fault.
    assert_named("REDIS_SENTINEL_NAME", &[("REDIS_SENTINELS", "127.0.0.1:1")]).await;
}

/// Asserts that a market with these settings does not start, and that its error begins with `name`.
async fn assert_named(name: &str, settings: &[(&str, &str)]) {
    let mut command = process::command(settings);
    let output = command.stderr(Stdio::piped()).output();
    let output = soon("the market gives up", output).await.expect("it runs");
    let error = String::from_utf8(output.stderr).expect("it is text");
    assert!(!output.status.success(), "{settings:?}");
    assert!(
        error.starts_with(&format!("{name}: ")),
        "{settings:?}: {error}"
    );
    assert!(!error.contains("open-sesame"), "{settings:?}: {error}");
    assert!(output.stdout.is_empty(), "{settings:?}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_password_that_redis_refuses_is_not_repeated() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "right"]).await;
    let url = format!("redis://:open-sesame@127.0.0.1:{}/", server.port());
    let mut command = process::command(&[("REDIS_URL", &url)]);
    let output = command.stderr(Stdio::piped()).output();
    let output = soon("the market gives up", output).await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("REDIS_URL: "), "{error}");
    assert!(!error.contains("open-sesame"), "{error}");
    assert!(!output.status.success() && output.stdout.is_empty());
}
