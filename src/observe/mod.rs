//! Metrics for operators, with the feature `metrics`, and events, with the feature `tracing`.
//!
//! # Metrics
//!
//! The library counts through the facade of the crate [`metrics`](https://docs.rs/metrics), so the
//! service chooses where the numbers go: it installs a recorder, before or after it makes its layers.
//! The names follow those of OpenTelemetry's `aspnetcore.rate_limiting.*`.
//!
//! | name | kind | unit | labels | |
//! |---|---|---|---|---|
//! | `tower_semaphore.requests` | counter | requests | `policy`, `outcome` | what became of the requests of both layers. Under several limits a request counts once: under the narrowest policy, or under the policy that has refused it |
//! | `tower_semaphore.shadow_refusals` | counter | requests | `policy`, `outcome` | requests that a policy in shadow would have refused; the request itself counts as admitted |
//! | `tower_semaphore.claims` | counter | claims | `store`, `policy`, `outcome` | what became of the claims of layers, locks and jobs; a claim of several limits counts for each limit that has granted it, or for the limit that has refused it |
//! | `tower_semaphore.active_permits` | gauge | permits | `store`, `policy` | permits of this process that are neither released nor dropped, lost or not: work that runs now. A permit that `with_max_hold`, `with_max_stall` or, in memory, an operator has ended does not count any more |
//! | `tower_semaphore.queued_claims` | gauge | claims | `store`, `policy` | claims of this process that wait in a queue now |
//! | `tower_semaphore.claim.time_in_queue` | histogram | seconds | `store`, `policy`, `outcome` | from joining a queue to leaving it; claims that did not wait are not in it |
//! | `tower_semaphore.permit.duration` | histogram | seconds | `store`, `policy` | from the grant to the release or the drop |
//! | `tower_semaphore.lost_permits` | counter | permits | `store`, `policy`, `by` | `by`: `lease`, where a lease ended while its holder ran; `bound`, where `with_max_hold` or `with_max_stall` ended the permit; `revoked`, where an operator did |
//! | `tower_semaphore.degraded_permits` | counter | permits | `store`, `policy` | permits admitted, or kept, while the store was unavailable |
//! | `tower_semaphore.pauses` | counter | pauses | `store`, `policy` | pauses of keys that permits of this process have requested, as for an upstream's `Retry-After`; those of `Operate::pause` are not in it |
//! | `tower_semaphore.budget_units` | counter | units | `store`, `policy`, `use` | `use`: `reserved` when a permit with an estimate is granted; each of these ends as `spent`, `freed` (not used) or `lost` (an operator has revoked the permit, so they count as used). `spent` also has the units of rates, and those beyond an estimate |
//! | `tower_semaphore.store_call.duration` | histogram | seconds | `store`, `verb`, `outcome` | from sending a command to its answer; `outcome`: `ok`, `timeout`, `error` |
//! | `tower_semaphore.store_call.size` | histogram | claims or permits | `store`, `verb` | how many travel in one command: the sizes of the batches |
//!
//! - `policy` is the name of a [`Policy`](crate::Policy). Give policies few names: each has about a hundred series. The
//!   first 256 of a process have their own; all others share the label `_other`. A key is never a label.
//! - `store` is `memory`, `redis`, or `custom` for any other store. Of a custom store only the permits are counted,
//!   because only the store itself knows its claims and waiters.
//! - `verb` is `acquire`, `refresh` or `release`; `pause`, also for its end; `usage`, `revoke` and `limits` for an
//!   operator; `presence` for the report of a process about itself, and its queries.
//! - `outcome` of requests and claims:
//!
//! | outcome | |
//! |---|---|
//! | `admitted` | with a permit |
//! | `degraded` | with a permit that the store, which was unavailable, does not know |
//! | `exempt` | without a permit: the request has no key |
//! | `full` | the limit is reached |
//! | `key_closed` | an operator has closed the key |
//! | `timed_out` | the wait is over |
//! | `queue_full` | too many wait for the key |
//! | `paused` | the key is paused for longer than the claim would wait |
//! | `overloaded` | too many claims of this process wait |
//! | `unavailable` | the store failed |
//! | `closed` | the store is shut down |
//! | `revoked` | an operator ended the wait |
//! | `lost` | a global limit lost its permit before the call |
//! | `invalid` | a wrong key, or a claim that no store can grant |
//! | `cancelled` | dropped before it was known: the client is gone. For a time in a queue also: the store was shut down or became unavailable |
//!
//! A request counts when it is admitted or refused, not when its response is done. A request that
//! [`OnLost::Abort`](crate::OnLost::Abort) ends has already counted as `admitted`; its loss counts in `lost_permits`.
//! Permits count from the grant to the end of the body, so `active_permits` returns to zero after cancels, losses and
//! panics.
//!
//! ## Buckets
//!
//! The facade has no buckets: set [`SECONDS`] and [`SIZES`] in the exporter, for example in that of
//! Prometheus, whose recommended naming adds `_total` to counters and `_seconds` to times:
//!
//! ```
//! # #[cfg(feature = "metrics")] {
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//! use tower_semaphore::observe::{CALL_SIZE, SECONDS, SIZES};
//!
//! let recorder = PrometheusBuilder::new()
//!     .with_recommended_naming(true)
//!     .set_buckets_for_metric(Matcher::Prefix("tower_semaphore".into()), SECONDS)
//!     .unwrap()
//!     .set_buckets_for_metric(Matcher::Full(CALL_SIZE.into()), SIZES)
//!     .unwrap()
//!     .build_recorder();
//! let metrics = recorder.handle(); // `metrics.render()` answers `GET /metrics`
//! ::metrics::set_global_recorder(recorder).unwrap();
//! # drop(metrics);
//! # }
//! ```
//!
//! ## Recorders
//!
//! A thread caches the instruments of a policy for a second at most, then uses a recorder that was
//! installed later. A permit that was granted before that counts at no recorder, or at the old one,
//! until its end. Recorders are distinguished by their addresses: a test that makes several local
//! recorders has to keep each until the last is made.
//!
//! A recorder or subscriber that panics, once or at every call, loses only the data of that call. The panic reaches the
//! panic hook and ends there, unless panics abort the process.
//!
//! # Events
//!
//! With the feature `tracing` the crate emits a span for each claim in a queue, and an event if something is not as it
//! should be. All have the target `tower_semaphore`. Each line is an example of the output of
//! `tracing_subscriber::fmt`:
//!
//! ```text
//!  INFO wait{store="memory" policy="concurrency" outcome="timed_out"}: tower_semaphore: close
//! DEBUG wait{store="memory" policy="concurrency"}: tower_semaphore: a claim waits key="ann"
//! DEBUG tower_semaphore: a claim is refused store="memory" policy="concurrency" outcome="full" key="ann" error=limit reached: 1 of 1 units are held
//! DEBUG tower_semaphore: a request in shadow would be refused policy="concurrency" outcome="full"
//! DEBUG tower_semaphore: a request is refused without a key policy="concurrency" error=the header x-account-id is missing
//! ERROR tower_semaphore: requests have no key because the service does not provide it: apply the layer that inserts this extension outside of the limit (in axum: after it); for the peer's address serve an axum router with into_make_service_with_connect_info, and enable the feature tonic for a server of tonic policy="concurrency" extension="u64"
//! DEBUG tower_semaphore: a request has no such extension, so the next extractor counts extension="u64"
//! ERROR tower_semaphore: requests are refused because a limit outside counts them in the same semaphore (store, policy and key): give one of the two limits a policy of its own with with_policy policy="concurrency" limit=5 outer_policy="concurrency" outer_limit=20
//!  WARN tower_semaphore: a WebSocket, another upgrade or a CONNECT tunnel is not limited, because its permit has ended with the response's empty body: move the Permit from the request's extensions into the task of the connection, before hyper::upgrade::on takes the request policy="concurrency"
//! ERROR tower_semaphore: a response with Retry-After pauses nothing, because its request holds no permit under the policy of with_cooldown: give with_cooldown the policy of the limit, or of one of the request's claims policy="upstream"
//!  WARN tower_semaphore: the Retry-After of a response may pause nothing, because the store has failed policy="concurrency" error=the semaphore's store failed: connection refused
//!  WARN tower_semaphore: a response with Retry-After is returned before the store has answered its pause, which goes on policy="concurrency"
//!  WARN tower_semaphore: a request has no route for key::matched_path: unless it was for an unknown path or a nested service, apply the limit to axum's Router instead of around it
//!  WARN tower_semaphore: a permit is lost store="memory" policy="concurrency" by="bound" token=1
//!  WARN tower_semaphore: a permit is lost store="redis" policy="concurrency" by="lease" token=1784000000000001
//! DEBUG tower_semaphore: a permit is degraded store="redis" policy="concurrency" how="admitted" key="semaphore:2:{concurrency:ann}"
//! DEBUG tower_semaphore: a permit is degraded store="redis" policy="concurrency" how="kept" key="semaphore:2:{concurrency:ann}"
//!  WARN tower_semaphore: the store fails error=no answer from Redis within 100.2ms
//!  WARN tower_semaphore: the store works again
//! DEBUG tower_semaphore: connected address=127.0.0.1:6379
//! DEBUG tower_semaphore: not connected error=Connection refused (os error 111)
//!  INFO tower_semaphore: connected again address=127.0.0.1:6379
//!  WARN tower_semaphore: the server may evict permits and the limits that operators set when its memory is full: maxmemory-policy is allkeys-lru
//!  WARN tower_semaphore: limits that operators had set are lost, because the server has lost data: what it has now is in force
//!  WARN tower_semaphore: the server does not tell the limits that operators set, as without a right to them: those known stay in force
//! ```
//!
//! - The span `wait` begins when a claim joins a queue, within the span of its request, and ends with an `outcome` like
//!   the outcome in the metrics.
//! - A key appears in events of level `DEBUG` only: the key of the narrowest claim. In `a permit is degraded`, and over
//!   Redis in `a claim waits`, it is the beginning of the names of the key's sets in Redis.
//! - A request in shadow is admitted, also if `a claim is refused` reports its claim's refusal by
//!   the store. That event has its key.
//! - No event, span or error has a password of a URL, or a certificate's key.
//! - Each runtime that uses a store has its own connections, so there may be several lines about
//!   connections.
//! - `the store fails` and `the store works again` mark the beginning and the end of a period in which claims fail, for
//!   each server of a cluster. A failure that may pass by itself, such as silence, is reported once several claims in a
//!   row have failed for at least one timeout. A failure that needs an operator, such as a wrong password or a
//!   missing right, is reported at once, even after another report. The period ends with an answered claim once none
//!   has failed for a lease, so alternating failures and successes are one period. After an outage the end is reported
//!   as soon as the server answers.
//!
#![cfg_attr(not(feature = "metrics"), doc = include_str!("../guide/links/docs_rs.md"))]

/// True if `metrics` or `tracing` is enabled. If neither is, answers are not inspected, which saves a tenth of an
/// acquire and its release in memory.
pub(crate) const IS_ON: bool = cfg!(any(feature = "metrics", feature = "tracing"));

/// Without the feature `metrics` no recorder can be installed.
#[cfg(all(feature = "redis", not(feature = "metrics")))]
pub(crate) fn has_recorder() -> bool {
    false
}

mod boundary;
mod counts;
pub(crate) mod events;
mod outcome;
#[cfg(feature = "metrics")]
mod recorder;

#[cfg(feature = "redis")]
pub(crate) use counts::{Meter, called};
#[cfg(feature = "redis")]
pub(crate) use outcome::Answered;
#[cfg(all(feature = "redis", feature = "metrics"))]
pub(crate) use recorder::has_recorder;
#[cfg(feature = "metrics")]
pub use recorder::{
    ACTIVE_PERMITS, BUDGET_UNITS, CALL_DURATION, CALL_SIZE, CLAIMS, DEGRADED_PERMITS, LOST_PERMITS,
    MAX_POLICIES, OTHER_POLICIES, PAUSES, PERMIT_DURATION, QUEUED_CLAIMS, REQUESTS, SECONDS,
    SHADOW_REFUSALS, SIZES, TIME_IN_QUEUE,
};
pub(crate) use {
    boundary::contain,
    counts::{OutcomeCounter, PermitCounter, WaitCounter, budget, shadowed},
    outcome::{BudgetUse, LostBy, Outcome, Store},
};
