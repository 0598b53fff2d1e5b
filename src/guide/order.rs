//! Order: first come, fair shares, head starts. And several limits at once.
//!
//! # Which to choose
//!
//! | order | fair to | choose it where | never starves |
//! |---|---|---|---|
//! | first come, first served, the default | requests | one tenant uses the key, or each sends little | any request |
//! | [fair shares](crate::Claim::with_flow) | tenants | tenants share the key, and one may send a crowd | any request |
//! | [head starts](crate::Claim::with_head_start) | classes of work | some work cannot wait and other work can | a request that has waited as long as the head start |
//!
//! All three apply across all processes of a store, and need no further call. The wait of a request under each order,
//! beside a crowd of 1,000 (BENCHMARKS.md, "Fair shares"; `benches/plots/order-*.svg` has a picture of each):
//!
//! ```text
//! first come    ann ann ann ann ann ann ann ann ... 1,000 of ann's, then bob
//! fair shares   ann bob ann bob ann bob ann ann ... bob is served next but one
//! head starts   bob bob bob ann ann ann ann ann ... bob passes what came in the last 30 s
//! ```
//!
//! # Fair shares
//!
//! A claim names the *flow* that it belongs to: a tenant, an API key, a class of work. Flows that wait are served in
//! turns, in the ratio of their shares:
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let model = key::from_fn(|parts| {
//!     let tenant = parts.headers.get("x-account-id")?;
//!     let share = if parts.headers.contains_key("x-plan") { 4 } else { 1 };
//!     Some(Claim::new("model-1").with_flow(tenant).with_share(share))
//! });
//! let layer = ConcurrencyLimitLayer::new(20, model, MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(30));
//! # drop(layer);
//! ```
//!
//! If a request is under several limits, `with_fair_queues` on the
//! [layer](crate::ConcurrencyLimitLayer::with_fair_queues) uses the narrowest key, usually the account, as the flow at
//! each wider limit.
//!
//! - *Fair in what?* In units granted, not in the time for which they are held. A tenant whose requests hold ten times
//!   longer gets the same number of turns, and so ten times more of the limit's time. With five permits, two tenants
//!   that always waited, and holds of 10 and 100 ms, the slow tenant had 0.91 of all permits' time, and half of the
//!   grants. Give such a tenant a lower share, or its claims a greater weight.
//! - *A newcomer* waits for at most *k* other grants if *k* other flows wait, however many claims they have queued.
//!   This holds while the shares of all waiting flows add up to less than 100,000. An idle flow saves nothing up.
//! - *A head that does not fit* holds up all claims behind it, whatever their flows, so that it does not starve. So do
//!   not give a class a lower limit on the same key if it should have less than the others. Give it a separate,
//!   narrower limit with a separate queue.
//! - *Claims without a flow* together are one flow of share 1, from the moment a claim with a flow joins the queue
//!   until nothing waits.
//! - *A flow has no head start*: a claim with both is refused as not valid. Use a flow for each class instead, such as
//!   `ann/interactive` with a share of 4 and `ann/batch` with 1, which starves neither.
//! - *A claim that gives up* leaves its turn to the next claim of its flow, and the claims behind it move up. So a flow
//!   whose claims mostly time out in the queue still gets its turns. In Redis one call looks at the next 500 waiters at
//!   most, to bound its duration. If a queue stays longer than that, such a flow may fall behind others. Keep [its
//!   queue](crate::Claim::with_max_waiting) as short as its waits.
//! - *A queue is full* for a claim when the waiters that would be served before it reach the number that the claim
//!   allows. So the crowd of one flow does not keep out a newcomer of another. Each new flow may add a waiter to a full
//!   queue. Let no client choose its flow.
//! - *An outage* that loses the queue also loses the turns. Waiters rejoin the queue in the order of their heartbeats.
//!
//! # Head starts
//!
//! [`Claim::with_head_start`](crate::Claim::with_head_start) lets a claim count as if it had arrived earlier, by the
//! time of the head start:
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::Claim;
//!
//! let seconds = Duration::from_secs;
//! let batch = Claim::new("model-1").with_limit(6).with_wait(seconds(120));
//! let interactive = Claim::new("model-1").with_limit(8).with_wait(seconds(2));
//! let interactive = interactive.with_head_start(seconds(30));
//! # drop((batch, interactive));
//! ```
//!
//! | | |
//! |---|---|
//! | an interactive request | passes every batch job that came within the last 30 s |
//! | a batch job that has waited for 30 s | is not passed any more: it ages, and does not starve |
//! | two requests of one kind | are served in the order of their arrival |
//!
//! Under a full limit, with ten times as much batch work in the queue, interactive claims waited 0.04 s at
//! the median and 0.31 s at the 99th percentile: as long as with no batch work at all. Without a head start
//! they waited 10.3 s (BENCHMARKS.md, "Several limits at once").
//!
//! - A head start passes *waiters*, not holders. Batch jobs that hold the whole limit still have to end, so
//!   give them a lower limit than interactive requests on the same key, as above: two of eight places are
//!   never theirs.
//! - The head of the queue holds up all waiters behind it until it is granted, so that a heavy claim is not
//!   starved. A batch job that has waited for 30 s may be that head: while six batch jobs run it is not
//!   granted, and interactive requests that came after it had aged wait behind it, although two places are free.
//! - So choose the longest acceptable delay of batch work as the head start. A head start that is longer than any job
//!   waits is absolute priority.
//! - [`with_max_waiting`](crate::Claim::with_max_waiting) counts only the waiters that a claim does not pass,
//!   so a queue full of batch jobs refuses no interactive request.
//!
//! # From narrow to wide
//!
//! A request is often under its account's limit *and* its route's *and* the fleet's. An extractor then
//! returns several claims, the narrowest first:
//!
//! ```
//! use axum::extract::MatchedPath;
//! use std::time::Duration;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let limits = key::from_fn(|parts| {
//!     let account = parts.headers.get("x-account-id")?; // without it, the request is exempt
//!     let route = parts.extensions.get::<MatchedPath>()?; // `/items/{id}`, not each item's path
//!     Some([
//!         Claim::new(account).with_limit(5),
//!         Claim::new(route.as_str()).with_limit(100).with_policy("route"),
//!         Claim::new("all").with_limit(1_000).with_policy("fleet"),
//!     ])
//! });
//! let layer = ConcurrencyLimitLayer::new(5, limits, MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(2));
//! # drop(layer);
//! ```
//!
//! - **All or none.** A claim that does not wait gets a permit of each limit or takes nothing from any. The
//!   refusal names the limit that refused, and the `RateLimit-Policy` field lists them all.
//! - **One round trip.** Over one Redis server one script decides. Four limits on an idle connection took
//!   1.5 times as long as one, and 0.41 of the time of four stacked layers (BENCHMARKS.md, "Several limits
//!   at once"). On a cluster the limits live on several nodes and are decided one after the other, with the
//!   same meaning.
//! - **One permit.** It covers all limits, and dropping its last clone releases all of them.
//!   [`Permit::levels`](crate::Permit::levels) has the parts.
//!
//! The order matters for claims that wait. A claim keeps its units of the narrow limits, and joins the queue of the
//! first limit that is full. So an account's crowd waits in the account's own queue, and no more of its requests than
//! its limit wait in the queue of the fleet. Accounts do not block each other. Use the same order everywhere: two
//! requests that claim the same limits in opposite orders may each hold the units that the other waits for, until one
//! wait is over.
//!
//! Give each level a separate policy. One key under two policies is two semaphores, and clients read the policy's name.
//!
//! # Layers or claims?
//!
//! Stacked layers mean the same, with a round trip each. Use one layer with several claims where one
//! extractor knows them all. Use stacked layers where the limits belong to different parts of the router:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let store = MemorySemaphore::new();
//! let account = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), store.clone());
//! let exports = ConcurrencyLimitLayer::new(20, key::fixed("exports"), store).with_policy("exports");
//! let app: Router = Router::new()
//!     .route("/export", get(|| async { "rows" }).layer(exports)) // the wider limit inside
//!     .route("/items", get(|| async { "items" }))
//!     .layer(account);
//! # drop(app);
//! ```
//!
//! Nested layers acquire from the outside in, so the narrowest belongs outside: an account at its limit then takes
//! nothing from the limits of routes. The permit in the request's extensions keeps the permits of all layers.
//!
//! # Different limits on one key
//!
//! Claims for one key may have different limits; each is granted under its own. That makes *reserves*
//! without further keys: with a limit of 100 for critical calls and 80 for the rest, 20 places are for
//! critical calls alone. A claim without a head start passes no queue, so either let only critical calls
//! wait, or give them a head start. Here nothing waits:
//!
//! ```
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemorySemaphore::new();
//! let ordinary = Claim::new("database").with_limit(8);
//! let critical = Claim::new("database").with_limit(10);
//!
//! let mut held = Vec::new();
//! for _ in 0..8 {
//!     held.push(store.acquire(ordinary.clone()).await.unwrap());
//! }
//! assert!(matches!(store.acquire(ordinary).await, Err(AcquireError::Full { .. })));
//! assert!(store.acquire(critical).await.is_ok(), "two places are for critical calls");
//! # }
//! ```
//!
//! A lowered limit ends no permit, and grants nothing until it has room.
