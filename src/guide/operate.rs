//! Operate it: how to try a limit out, what to measure, who holds what, and how to take a permit back.
//!
//! # Try a limit before it bites
//!
//! A layer [in shadow](crate::ConcurrencyLimitLayer::with_shadow) refuses and delays no request. For each request it
//! makes the claims that a layer in force would make, and counts the refusals. Its responses have no RateLimit fields,
//! and its permits [are in shadow](crate::Permit::is_shadow):
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_shadow(true);
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! let export = || {
//!     let request = Request::get("/export").header("x-account-id", "ann").body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//! let (first, second) = (export().await.unwrap(), export().await.unwrap());
//! assert_eq!(second.status(), 200, "counted, not refused");
//! # drop(first);
//! # }
//! ```
//!
//! A rehearsal in four steps:
//!
//! 1. Choose a limit by [Little's law](super::choose) and put the layer in, in shadow, with the waits and bounds that
//!    it will have.
//! 2. Let a day with its busiest hour pass. Read `tower_semaphore.shadow_refusals` by policy and outcome. Divided by
//!    the layer's `tower_semaphore.requests`, it is the fraction that would have been refused. Under several limits
//!    those requests count under the narrowest policy.
//! 3. Find out which accounts are refused: the event `a claim is refused` names the key, at level `DEBUG`. One account
//!    that leaks streams is not a reason for a higher limit; many accounts at 1 % are.
//! 4. Take `with_shadow` away, and keep the old limit of the proxy for another day.
//!
//! A limit in force changes the load: refused clients come back, and fewer requests run at a time. So the prediction is
//! most exact where few would be refused, and a limit with few refusals is what you are looking for.
//!
//! # Metrics
//!
//! With the feature `metrics` the library counts through the facade of that name; [`observe`](crate::observe) has the
//! table of names, units and labels, and how to install an exporter. A key is never a label.
//!
//! | question | look at |
//! |---|---|
//! | Is a limit too low? | `claims` with outcome `full`, `timed_out` or `queue_full`, as a fraction of all claims, by policy |
//! | Does an upstream stop us? | `claims` with outcome `paused`, by policy: [pauses](super::pauses) |
//! | Is a wait too long? | `claim.time_in_queue`: its 99th percentile against `with_wait` |
//! | How long are requests in flight, the *W* of Little's law? | `permit.duration` |
//! | How many are in flight here? | `active_permits`: permits of this process, whatever their weight |
//! | Is a permit held without end? | `permit.duration`, its highest buckets; then *who holds what*, below |
//! | Is Redis well? | `store_call.duration` by outcome; `requests` with outcome `unavailable` or `degraded` |
//! | Is a process starved or suspended? | `lost_permits` with `by="lease"` |
//! | Do upstreams answer with `Retry-After`? | `pauses`, and `claims` with outcome `paused` |
//!
//! In PromQL, with the names that the exporter of Prometheus makes of these:
//!
//! ```text
//! # The fraction of its claims that each policy refuses
//! sum by (policy) (rate(tower_semaphore_claims_total{outcome=~"full|timed_out|queue_full"}[5m]))
//!   / sum by (policy) (rate(tower_semaphore_claims_total[5m]))
//!
//! # The 99th percentile of the time in the queue
//! histogram_quantile(0.99,
//!   sum by (policy, le) (rate(tower_semaphore_claim_time_in_queue_seconds_bucket[5m])))
//! ```
//!
//! The first query counts claims and not requests: a request under several limits counts only once in `requests`, so a
//! wide policy has its refusals there, but not its grants.
//!
//! `examples/market/grafana.json` is a dashboard of such queries; the example `market` answers `GET /metrics` when it is
//! built with the feature. Three alarms are enough for a start:
//!
//! | alarm | means |
//! |---|---|
//! | outcome `unavailable` or `degraded` above zero for a minute | Redis is away, and [the policy](super::outages) decides |
//! | `lost_permits{by="lease"}` above zero | a process was paused, or Redis was away for longer than a lease |
//! | refusals of a policy above what you accepted in shadow | traffic has grown, or a client leaks permits |
//!
//! # Logs
//!
//! With the feature `tracing` the library emits a span for each claim that waits, and an event for each refusal, loss,
//! degraded permit and outage. [`observe`](crate::observe#events) has an example line of each. Keys appear at level
//! `DEBUG` only, passwords nowhere. Without the feature, a layer outside of the limit reads the reason from the
//! [response's extensions](super::clients#a-refusal).
//!
//! # Who holds what?
//!
//! Both stores answer this through [`Operate`](crate::Operate). A store in memory does so only if it is set to [list
//! its holders](crate::memory::Builder::holders). Label claims with what an operator should read:
//!
//! ```
//! use http::request::Parts;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore, Operate, Policy};
//!
//! fn claim(parts: &Parts) -> Result<Claim, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("no account")?;
//!     Ok(Claim::new(account).with_label(format!("{} {}", parts.method, parts.uri.path())))
//! }
//!
//! async fn report(store: &impl Operate, account: &str) -> Result<(), Box<dyn std::error::Error>> {
//!     let usage = store.usage(&Policy::DEFAULT, &account.into()).await?;
//!     println!("{} units of {:?}, {} wait", usage.units, usage.limit, usage.waiting.len());
//!     for permit in &usage.held {
//!         let (label, process) = (permit.label.as_deref().unwrap_or("?"), &permit.process);
//!         println!("{label} on {:?}, since {:?}", process.host, permit.since);
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemorySemaphore::builder().holders(true).build();
//! let layer = ConcurrencyLimitLayer::new(5, claim, store.clone());
//! report(&store, "ann").await.unwrap();
//! # drop(layer);
//! # }
//! ```
//!
//! [`keys`](crate::Operate::keys) streams the keys of a policy that are in use, and
//! [`keys_page`](crate::Operate::keys_page) lists some of them in a bounded time, with a cursor to go on. If a key has
//! more than 64 bytes (over Redis: when percent-encoded), the store keeps only its SHA-256. You can still look its
//! usage up by the key itself. A [`Lock`](crate::Lock) counts under the policy `lock`.
//! [`counts`](crate::Operate::counts) returns how many units of many keys are held, and which keys are
//! [paused](crate::Operate::pause). [`processes`](crate::Operate::processes) returns the processes that are alive. All
//! of this is also available [from a terminal](super::terminal).
//!
//! With the feature `axum`, [`usage_routes`] serves pages of keys and the usage of each key as JSON, with links from
//! one to the other. The routes change nothing. They do not authenticate, so nest them behind your authentication:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, extract::Request, http::StatusCode, middleware::{self, Next}, response::{IntoResponse, Response}};
//! use tower_semaphore::{MemorySemaphore, usage_routes};
//!
//! async fn operators_only(request: Request, next: Next) -> Response {
//!     match request.headers().get("x-operator") {
//!         Some(_) => next.run(request).await, // check it
//!         None => StatusCode::FORBIDDEN.into_response(),
//!     }
//! }
//!
//! let store = MemorySemaphore::builder().holders(true).build();
//! let routes = usage_routes(store).layer(middleware::from_fn(operators_only));
//! let app: Router = Router::new().nest("/debug/permits", routes);
//! # drop(app);
//! # }
//! ```
//!
//! ```sh
//! base=localhost:3000/debug/permits
//! curl -H 'x-operator: …' $base/keys                                     # the keys in use, and links to their usage
//! curl -H 'x-operator: …' $base/usage?key=ann                            # who holds ann's units, who waits
//! curl -H 'x-operator: …' -G $base/usage -d policy=lock --data-urlencode 'key=item:a&b'
//! ```
//!
//! # Take a permit back
//!
//! [`revoke`](crate::Operate::revoke) ends a permit by policy, key and id. Its units go to the next waiter at once; its
//! holder is notified that the permit is lost, and [`OnLost`](crate::OnLost) decides whether its request ends. A claim
//! that waits under that id is refused.
//!
//! ```
//! use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemorySemaphore::builder().holders(true).build();
//! let stuck = store.acquire(Claim::new("ann").with_limit(1)).await.unwrap();
//!
//! let usage = store.usage(&Policy::DEFAULT, &"ann".into()).await.unwrap();
//! assert!(store.revoke(&Policy::DEFAULT, &"ann".into(), &usage.held[0].id).await.unwrap());
//! assert!(stuck.is_lost());
//! assert!(store.acquire(Claim::new("ann").with_limit(1)).await.is_ok());
//! # }
//! ```
//!
//! Over Redis the holder may be any process. A message notifies it at once. If the message is lost, the holder is
//! notified when it has subscribed again, or by its next refresh, a third of a lease later at most.
//!
//! The units that the permit was claimed with are free at once. Its holder frees the units that
//! [`resize`](crate::Permit::resize) has added, as soon as it is notified. If its process is dead, these are free when
//! their lease ends.
//!
//! Revoking takes the *permit*, not the work: a handler that ignores the loss goes on. With
//! `OnLost::Abort` the handler is dropped and its client gets 503. After the response's head, the body is dropped and
//! the response is cut.
//!
//! # Change a limit
//!
//! [`set_limit`](crate::Operate::set_limit) sets the limit of a key, or of a policy, in every process: no restart is
//! needed, and no permit ends. 0 closes a key. [`limits`](crate::Operate::limits) lists the limits that are set, with
//! their times and notes. See [limits that change](super::recipes::changes).
//!
#![cfg_attr(feature = "axum", doc = include_str!("links/axum.md"))]
#![cfg_attr(not(feature = "axum"), doc = include_str!("links/docs_rs.md"))]
