//! The connections that `connect` makes: over TLS, over a Unix socket, as a user, to a database.
//!
//! The server's plain TCP port stays open for the tests' own connection, the oracle, which sees how the store is
//! connected.

mod chosen;
mod closed;
mod credentials;
mod paused;
mod proxies;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod several_servers;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod tls;
mod urls;
mod wrong;

use std::time::Duration;
use testing::causes::causes;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::ConnectError};

/// The longest time for an event to happen, even on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

fn claim() -> Claim {
    Claim::new("ann").with_limit(1)
}

/// Asserts that a permit can be acquired and released.
async fn assert_works(store: &RedisSemaphore) {
    let permit = store.acquire(claim()).await.expect("there is room");
    assert!(permit.release().await);
}

/// The setting that an outcome's error names.
fn blamed(outcome: Result<RedisSemaphore, ConnectError>) -> &'static str {
    match outcome {
        Err(error) if error.setting().is_some() => error.setting().unwrap_or_default(),
        other => panic!("no setting is blamed: {other:?}"),
    }
}

/// The cause of a failed TLS connection.
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
fn refusal(outcome: Result<RedisSemaphore, ConnectError>) -> String {
    match outcome {
        Err(error) if error.to_string().contains("no TLS connection to Redis") => causes(&error),
        other => panic!("TLS has not failed: {other:?}"),
    }
}
