//! When Redis fails, when a process stops, and when you deploy.
//!
//! # A request during an outage
//!
//! A failure of the store is never mistaken for a reached limit. Each request is decided within a bounded time, by the
//! policy that you choose:
//!
//! | [`WhenUnavailable`](crate::redis::WhenUnavailable) | a new request | a permit that is held | choose it where |
//! |---|---|---|---|
//! | `Refuse` (default) | 503 with `Retry-After` | lost at the end of its lease; the request continues or ends, by [`OnLost`](crate::OnLost) | the limit protects something that breaks |
//! | `Admit` | admitted | kept, [degraded](crate::Permit::is_degraded) | the limit is for fairness, and an outage should not be noticed |
//! | `Share` | admitted up to *limit ÷ live processes*, rounded up; then 503 | kept, degraded | both matter: all processes together stay near the limit |
//! | `ShareOf { fraction }` | admitted up to *fraction × limit*, rounded up; then 503 | kept, degraded | the same, with processes of unequal load |
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! use tower_semaphore::{RedisSemaphore, redis::WhenUnavailable};
//!
//! let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::Share);
//! let semaphore = builder.connect("redis://127.0.0.1/").await?;
//! # drop(semaphore); Ok(()) }
//! ```
//!
//! With a limit of 20 and five processes, each may have four of every key. Because of the rounding, a limit below the
//! number of processes is exceeded: a limit of 1 is then one *per process*. If a limit must not be exceeded, use a
//! [strict](crate::Claim::with_strict) claim or a [`Lock`](crate::Lock). Both are refused while the store is
//! unavailable, whatever the policy. [`WhenUnavailable`](crate::redis::WhenUnavailable) lists exactly what each policy
//! promises.
//!
//! # How long it takes
//!
//! | | with the default timeout of 250 ms |
//! |---|---|
//! | a new request while Redis does not answer | decided within 500 ms |
//! | a request in the queue | decided within a second and a half |
//! | after three failures in a row, over at least a timeout | the circuit breaker is open: decided at once, without Redis |
//! | all connections are mute, but new ones work | after 250 ms a new connection replaces each mute one; no request fails |
//! | Redis is back | the next probe closes the breaker; degraded and lost permits are acquired again. The delay is at most a quarter of the outage, and at most 2 s |
//!
//! While the breaker is open only one probe at a time is sent, so a server that comes back meets no storm. On a cluster
//! each node has a separate breaker, and keys of live nodes are limited as usual.
//!
//! The pause between two attempts to connect grows to a quarter of the outage so far, but not beyond 2 s. Each pause is
//! shortened at random, by a half at most, so that processes do not connect in step. A process connects to a server at
//! most twice a second. This includes all its runtimes, its subscription, and the watch of a cluster or of Sentinels
//! (`tests/topology/closing.rs`).
//!
//! An outage that is shorter than a lease loses no permit. A longer outage loses the permits that cannot be refreshed,
//! if the policy is `Refuse`: each holder learns of it by its own clock, also while Redis is away. When Redis is back,
//! a lost permit whose holder still runs is granted again if the limit has room and no claim waits.
//!
//! # A handler that loses its permit
//!
//! ```
//! use axum::http::StatusCode;
//! use tower_semaphore::Permit;
//!
//! # #[cfg(feature = "axum")] {
//! async fn export(permit: Permit) -> (StatusCode, &'static str) {
//!     if permit.is_degraded() {
//!         // Redis is away: do the cheap thing.
//!         return (StatusCode::OK, "from the cache");
//!     }
//!     tokio::select! {
//!         rows = rows() => (StatusCode::OK, rows),
//!         () = permit.lost() => (StatusCode::SERVICE_UNAVAILABLE, "the permit was lost"),
//!     }
//! }
//! # async fn rows() -> &'static str { "rows" }
//! # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(export));
//! # }
//! ```
//!
//! [`OnLost::Abort`](crate::OnLost) does this for every handler. A handler that has not answered yet is dropped, and
//! its client gets 503. A response that has begun is cut. A response in one piece, such as a completion that is not
//! streamed, spends all its time before the head, so it ends with 503. Without `Abort` the request continues without a
//! permit. That is right for most services: the work is half done already.
//!
//! # The health route
//!
//! [`check`](crate::RedisSemaphore::check) checks again what [`connect`](crate::redis::Builder::connect) has checked:
//! does the server answer, is it a primary, does it permit every command? It takes a second at most, and concurrent
//! calls share one answer.
//!
//! ```
//! use axum::{extract::State, http::StatusCode};
//! use tower_semaphore::RedisSemaphore;
//!
//! async fn ready(State(semaphore): State<RedisSemaphore>) -> (StatusCode, String) {
//!     match semaphore.check().await {
//!         Ok(risks) => (StatusCode::OK, risks.iter().map(|risk| format!("{risk}\n")).collect()),
//!         // The text of an error does not include its cause, so all levels are joined.
//!         Err(error) => {
//!             let levels = std::iter::successors(Some(&error as &dyn std::error::Error), |level| level.source());
//!             let levels: Vec<_> = levels.map(ToString::to_string).collect();
//!             (StatusCode::SERVICE_UNAVAILABLE, levels.join(": "))
//!         }
//!     }
//! }
//! # let _: axum::Router<RedisSemaphore> = axum::Router::new().route("/ready", axum::routing::get(ready));
//! ```
//!
//! Use it for an alarm, or for *readiness* if the policy is `Refuse`. Do not let *liveness* depend on Redis: a
//! restart mends no outage of Redis and ends responses that would have survived it. With `Admit` or `Share`
//! a process without Redis still serves, so take it out of the rotation for other reasons only.
//!
//! # At the start
//!
//! The error of `connect` has the kind [`Unavailable`](crate::redis::Kind::Unavailable) if another attempt may succeed:
//! no server answers in time, or the server loads its data, accepts no writes just now, or has too few replicas.
//! Otherwise its kind is [`Misconfigured`](crate::redis::Kind::Misconfigured): it names the setting, or the right, and
//! the remedy. Waiting does not help then, so the process should end with that error:
//!
//! ```no_run
//! use std::time::Duration;
//! use tower_semaphore::{RedisSemaphore, redis::{ConnectError, Kind}};
//!
//! async fn connect(url: &str) -> Result<RedisSemaphore, ConnectError> {
//!     loop {
//!         match RedisSemaphore::connect(url).await {
//!             Err(error) if error.kind() == Kind::Unavailable => eprintln!("waiting for Redis: {error}"),
//!             connected => return connected,
//!         }
//!         tokio::time::sleep(Duration::from_secs(1)).await;
//!     }
//! }
//! ```
//!
//! # The kind of an error
//!
//! The source of an [`AcquireError::Store`](crate::AcquireError::Store) is a [`redis::Error`](crate::redis::Error). It has
//! the same [kinds](crate::redis::Kind), and two more:
//!
//! | kind | what has happened | what to do |
//! |---|---|---|
//! | `Retry` | the key is moving to another node, or this process was too busy | claim again |
//! | `Unavailable` | no server answers, or none can work now | nothing: the policy decides until one does |
//! | `OneKey` | the server refuses this key: it has another type, or the user lacks a right to it | choose another prefix, or allow the key |
//! | `Misconfigured` | a password, a right, a certificate, a setting | change what the error names |
//!
//! # Deploys
//!
//! A process that has to stop should let its responses end, within a bound, and then release the remaining permits, so
//! that no claim waits for its leases:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use std::time::Duration;
//! use tower_semaphore::{ConcurrencyLimitLayer, RedisSemaphore, key};
//! use tokio::{signal::unix::{SignalKind, signal}, sync::watch, time::sleep};
//!
//! const DRAIN: Duration = Duration::from_secs(25);
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//!     let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), semaphore.clone());
//!     let app = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//!
//!     let mut terminate = signal(SignalKind::terminate())?;
//!     let (stop, mut stopping) = watch::channel(false);
//!     let mut stopped = stop.subscribe();
//!     tokio::spawn(async move {
//!         terminate.recv().await;
//!         stop.send_replace(true);
//!     });
//!     let listener = tokio::net::TcpListener::bind("0.0.0.0:3000").await?;
//!     let server = axum::serve(listener, app).with_graceful_shutdown(async move {
//!         let _ = stopping.wait_for(|stop| *stop).await;
//!     });
//!     let overdue = async {
//!         let _ = stopped.wait_for(|stop| *stop).await;
//!         sleep(DRAIN).await;
//!     };
//!     tokio::select! {
//!         served = server => served?,
//!         () = overdue => eprintln!("some responses did not end in time"),
//!     }
//!     for permit in semaphore.shutdown(Duration::from_secs(2)).await {
//!         eprintln!("{} is held until its lease ends", permit.semaphore);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - Behind a proxy, a dropped listener or a closed idle connection can fail a POST. The
//!   [chapter on proxies](super::proxies#restarts) shows how to avoid that.
//! - A graceful shutdown of hyper and axum waits for streams without a bound, and not at all for upgraded connections.
//!   So the code above waits for `DRAIN` at most. Send your WebSockets a separate signal.
//! - [`shutdown`](crate::RedisSemaphore::shutdown) refuses new claims with 503, so it comes last. Keep the sum
//!   of both bounds below the time after which your platform kills the process.
//! - A process that is killed without this shutdown delays others for at most a lease.
//! - In a rolling deploy old and new processes share the limits: those of one prefix, policy and key. Three
//!   markets that restarted one by one under load refused no request and left no permit
//!   (`tests/market/leaving.rs`). Change a lease by a factor of two at most in one deploy.
//! - Processes of two releases share limits and queues if both have the same [schema](super::deploy#schema).
//! - A version with another limit needs no care: while both versions run, each claim is granted under its own limit.
