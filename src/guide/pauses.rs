//! Pauses: a key is closed until an instant, in all processes, and waiters keep their places.
//!
//! An upstream answers 429 with `Retry-After: 30`. Each further request would be refused too, and some upstreams
//! punish it. A *pause* stops all processes that share the store: for 30 s no claim of the key is granted. When the
//! pause ends, the first waiter is granted, and the others follow in their order.
//!
//! # A client that obeys `Retry-After`
//!
//! With [`with_cooldown`](crate::GlobalConcurrencyLimitLayer::with_cooldown), a limit around a client pauses its key. The
//! second argument is the longest pause that an upstream may cause:
//!
//! ```no_run
//! use bytes::Bytes;
//! use http::Request;
//! use http_body_util::Empty;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_semaphore::{GlobalConcurrencyLimitLayer, RedisSemaphore};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//!     let limit = GlobalConcurrencyLimitLayer::new(8, "api.example.org", semaphore)
//!         .with_policy("upstream")
//!         .with_cooldown("upstream", Duration::from_secs(300));
//!     let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
//!     let client = ServiceBuilder::new().layer(limit).service(http);
//!
//!     let request = Request::get("http://api.example.org/").body(Empty::new())?;
//!     let response = client.clone().oneshot(request).await?;
//!     println!("{}", response.status()); // the next request waits if this is 429
//!     Ok(())
//! }
//! ```
//!
//! - A 429 or 503 pauses the key if it has `Retry-After` in seconds or as a date. Zero, a past date and other text pause
//!   nothing. Rejections of this crate in the same process, such as those of an inner limit, pause nothing either.
//! - Your code receives the response as the upstream sent it, once the store has answered the pause. To try again, drop
//!   the response first, because it holds a permit. The next attempt joins the queue.
//! - [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) has the same method, for a key per request. Give it a
//!   [wait](crate::ConcurrencyLimitLayer::with_wait), or it refuses requests during a pause.
//! - reqwest as a tower service is in a [recipe](super::recipes::calls#reqwest). The example `crawler` obeys its hosts in
//!   all its processes. The example `gateway` pauses an account, and sends the request to another account.
//!
//! Without a layer, [`Permit::pause`](crate::Permit::pause) pauses a key of the permit, for any client and any sign that
//! an upstream is overloaded. Await it before the permit is dropped, so that no waiter is granted before the pause:
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
//!
//! async fn call(semaphore: &MemorySemaphore) -> Result<&'static str, AcquireError> {
//!     let claim = Claim::new("upstream-7").with_policy("upstream").with_limit(8);
//!     let permit = semaphore.acquire(claim).await?;
//!     let answer = send().await;
//!     if answer == "quota exceeded" {
//!         permit.pause("upstream", Duration::from_secs(60), answer).await?;
//!     }
//!     Ok(answer)
//! }
//! # async fn send() -> &'static str { "quota exceeded" }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let semaphore = MemorySemaphore::new();
//! assert!(call(&semaphore).await.is_ok());
//! let paused = call(&semaphore).await.unwrap_err();
//! assert!(matches!(paused, AcquireError::Paused { .. }));
//! assert_eq!(paused.retry_after(), Some(Duration::from_secs(60)));
//! # }
//! ```
//!
//! # Rules
//!
//! | | during a pause |
//! |---|---|
//! | a permit that is held | stays held; the pause ends no request |
//! | a service of the [global layer](crate::GlobalConcurrencyLimitLayer) that is ready | has its permit, and may be called |
//! | a claim that can wait until the pause ends | joins the queue, or keeps its place |
//! | a claim that does not wait, or whose wait ends sooner | is refused at once: [`Paused`](crate::AcquireError::Paused), status 429 |
//! | another pause | makes it longer, never shorter |
//! | `resume` | ends it at once, and grants to the waiters |
//!
//! - The `Retry-After` of a refusal is the rest of the pause.
//! - A pause applies to one key under one policy. A claim with several limits gets all of them or none, so a paused limit
//!   refuses it like a full one.
//! - A pause counts neither in `max_waiting` nor as a waiting claim.
//! - A pause below 1 ms changes nothing. The longest pause is 31 days; a longer one is shortened.
//! - A layer [in shadow](crate::ConcurrencyLimitLayer::with_shadow) pauses a key too, and still admits its requests. A
//!   layer in force with the same store and policy obeys the pause.
//! - A claim may hold a narrow limit while it waits for a wide one. If the narrow key is paused then, the claim waits
//!   for the end of the pause, and joins the queue of the wide limit again after it. If the pause is ended early, the
//!   claim goes on with its next heartbeat, a twelfth of a lease and five seconds later at most. On a cluster a claim
//!   whose last calls are under way may still be granted.
//!
//! # From a terminal
//!
//! ```sh
//! semaphore pause upstream api.example.org 30s --note "maintenance"
//! semaphore resume upstream api.example.org
//! ```
//!
//! In Rust these are [`Operate::pause`](crate::Operate::pause) and [`Operate::resume`](crate::Operate::resume).
//! [`usage`](crate::Operate::usage) shows since when and until when a key is paused, and the note. The note of a cooldown
//! is the response, such as `429 with Retry-After: 30`. Refusals count as outcome `paused` in the
//! [metrics](crate::observe).
//!
//! # When the store fails
//!
//! - A pause that the store does not answer within 100 ms goes on in the background, and the log has a warning. A pause
//!   that fails is a warning too. The next 429 pauses again.
//! - While Redis is away, the process that has paused a key remembers the pause under the [policies](super::outages) that
//!   admit without Redis, also if another process has ended it. Other processes do not know it.
//! - A Redis that loses its data loses its pauses. The next 429 pauses again. Permits that were lost with the data do not
//!   come back before the end of that pause.
//! - If the clock of Redis is set back, a pause lasts at most its own length, counted from the next call for its key.
//! - A process that is killed changes nothing: its pauses stay in Redis until they end.
//!
//! # A pause or a limit of 0?
//!
//! | | pause | [limit of 0](crate::Operate::set_limit) |
//! |---|---|---|
//! | claims that wait | keep their places | are refused |
//! | other claims | 429 with the rest of the pause | 403, without `Retry-After` |
//! | ends | by itself, at an instant | when an operator changes the limit |
//! | applies to | one key | one key, or all keys of a policy |
//! | meant for | an upstream that will be back soon | an account that should stop until an operator decides |
