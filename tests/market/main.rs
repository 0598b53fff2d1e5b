//! The example `market`, run as a separate process and used over real sockets.

#[macro_use]
mod every_store;

mod client;
#[cfg(feature = "redis")]
mod conservation;
mod feed;
#[cfg(feature = "redis")]
mod fleet;
mod holders;
#[cfg(feature = "redis")]
mod leaving;
mod limit;
#[cfg(feature = "redis")]
mod locks;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "redis")]
mod outage;
mod process;
mod settings;
mod shutdown;
mod socket;
mod socket_client;
#[cfg(feature = "redis")]
mod turns;
#[cfg(feature = "redis")]
mod watchers;

use std::{future::Future, time::Duration};
use testing::wait::within;

/// Longer than anything here takes, so that a test that waits in vain fails instead of hanging.
const BOUND: Duration = Duration::from_secs(20);

/// The result of `future`, which must arrive within [`BOUND`].
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(what, BOUND, future).await
}
