//! Budgets: units per window of time, decided together with permits.
//!
//! A gateway in front of somebody else's quota needs two kinds of limits: how many requests run at a time, and how much
//! they use in a minute. A permit is returned when its request ends. Units of a *budget* come back with time. One
//! request can be under limits of both kinds; it gets all of them or none, and waits in one queue for them.
//!
//! # Requests and tokens per minute
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{AcquireError, Claim, Claims, MemorySemaphore, Semaphore};
//!
//! const MINUTE: Duration = Duration::from_secs(60);
//!
//! /// At most 5 requests of a key at a time, 600 per minute, and 100,000 tokens per minute.
//! fn limits(key: &str, typical_tokens: u32) -> Claims {
//!     let flight = Claim::new(key).with_limit(5);
//!     let rate = Claim::new(key).with_policy("rate").with_limit(600).with_window(MINUTE);
//!     let tokens = Claim::new(key).with_policy("tokens").with_limit(100_000).with_window(MINUTE);
//!     [flight, rate, tokens.with_estimate(typical_tokens)].into()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AcquireError> {
//! let store = MemorySemaphore::new();
//! let permit = store.acquire_all(limits("key-42", 800)).await?;
//! let mut used = 0;
//! for words in ["a", "streamed", "answer"] {
//!     used += words.len() as u32;
//!     permit.settle("tokens", used);
//! }
//! drop(permit); // frees what is left of the 800
//! # Ok(())
//! # }
//! ```
//!
//! The claims of a layer's key extractor have windows in the same way. The handler takes the permit from the request's
//! extensions to settle it. The example `gateway` does so for API keys, models, and accounts at upstreams.
//!
//! - Without an estimate a claim with a window is a *rate*: its weight is spent when it is granted. With an
//!   [estimate](crate::Claim::with_estimate) it is a *reservation*, and [`settle`](crate::Permit::settle) reports its
//!   use.
//! - Budgets come after limits of concurrency, and a longer window before a shorter one. Another order is an error.
//! - A request that waits for a budget already holds its permits of the concurrency limits. It takes nothing from any
//!   budget until all budgets have room for it (except [on a cluster](#over-redis)).
//! - Requests under the same budgets have to name budgets with equal windows in the same order. Otherwise two requests
//!   may block each other, each first in the queue in which the other waits, until one wait is over.
//! - Two windows for one key, such as a minute and a day, need two policies.
//!
//! # Spent and reserved
//!
//! Nothing is granted unless *spent + reserved + what the claim takes ≤ limit*.
//!
//! - *Spent* units were used. Time returns them evenly, a whole limit (that of the last grant) in each window: after
//!   *t* the budget has room for *limit × t ÷ window* more. An idle budget saves nothing beyond its limit.
//! - *Reserved* units may still be used. Time does not return them. A settlement moves units from reserved to spent, and
//!   the end of the permit frees the rest.
//! - A permit that ends without a settlement counts as having used its estimate. If it was settled with 0, it has used
//!   nothing.
//! - Use beyond an estimate is spent too. It delays later claims, but no running request.
//!
//! So if no request uses more than its estimate, the units used within any time *t* are at most *limit × (1 + t ÷
//! window)*: up to twice the limit in the window after an idle one.
//!
//! The end of a permit refunds nothing that was settled, so no unit is returned twice, by time and by a refund. Schemes
//! that charge an estimate and refund it later have this fault: with long streams they grant many times the limit.
//!
//! # How much to reserve
//!
//! Reserved units are not available to others, so estimate what requests typically use. If requests use their units
//! evenly while they run, each has settled half of its use on average. Half an estimate is free on average, because the
//! next waiter does not fit into less than its own. So a budget for which requests always wait reaches about *window ÷
//! (duration × (estimate ÷ used − ½)) × (1 − estimate ÷ (2 × limit))* of its limit, at most all of it. With streams of 5
//! to 60 s in a window of a minute:
//!
//! | estimate | used of the limit |
//! |---|---|
//! | the mean use | all |
//! | twice the mean use | all |
//! | four times, for example `max_tokens` | half |
//!
//! # Waits and refusals
//!
//! - A waiter is granted when time has returned its units, or as soon as the end of a permit makes room. A settlement
//!   lets time return the settled units. Waiters are granted in the order of their [queue](super::order), with flows
//!   and head starts. Flows take turns by units.
//! - A refusal has `RateLimit-Policy: "tokens";q=100000;w=60`. `Retry-After` is exact if no claim waits and only time
//!   has to pass. Otherwise it is estimated from observed permits, as for other limits.
//! - A claim is refused at once if its units cannot have returned before its wait ends.
//! - A request joins the queue of a full budget only, and keeps its place there while it waits for the next budget, so
//!   others wait behind it. It reserves nothing in budgets that had room: later requests may use these up, and then it
//!   waits behind them.
//! - A waiter that is first and not polled for two seconds loses its place, and joins again behind the others. Several such
//!   waiters lose their places one after the other.
//!
//! # Over Redis
//!
//! - One script decides permits and budgets together, so all processes share a budget. A settlement takes no separate call:
//!   it travels with the next refresh, a third of a lease later at most, or with the release.
//! - Units that a permit of a dead process has reserved and not settled are spent when its lease ends.
//! - If a claim of a rate is cancelled while its call is on the way, its units may be spent.
//! - A reservation that the server has lost counts as used and is not acquired again. The request goes on, and its
//!   permits of concurrency limits are acquired again.
//! - While Redis is unavailable, [`Share`](crate::redis::WhenUnavailable::Share) gives each process a bucket of its share of
//!   the limit, which refills with time. Redis never learns of these units.
//! - A server without an append-only file forgets spent units when it restarts. For windows of an hour or more
//!   [`check`](crate::RedisSemaphore::check) reports that as a [risk](crate::redis::Risk::NoPersistence).
//! - On a cluster each policy and key has its own slot, and a script can decide only one slot. So the claims of a
//!   request are acquired one after the other, and a request that waits for a budget keeps its units of the earlier
//!   budgets reserved. It may wait for at most the window of each earlier budget. A longer wait is a
//!   [`LongWait`](crate::semaphore::ClaimError::LongWait) error.
//!
//! # Beside other limiters
//!
//! As read in their sources in November 2026:
//!
//! | | several limits | reserve and settle | after a crash | a full budget | in flight too |
//! |---|---|---|---|---|---|
//! | this crate | all or none in one step | reserves, settles, frees the rest; each counts once, also if a reply is lost | the rest of a reservation is spent when its lease ends | waits in a fair queue, or refuses | yes |
//! | [tower_governor](https://docs.rs/tower_governor) | one per layer; an outer layer has counted a request that an inner one refuses | none | nothing is shared | refuses | no |
//! | [tensorzero](https://github.com/tensorzero/tensorzero) | all or none in one step | takes the estimate and returns the rest | the estimate counts as used | refuses | no |
//! | [aisix](https://github.com/api7/aisix) | all or none within a bucket; an earlier bucket has counted a request that a later one refuses | tokens are checked before and counted after | permits end after 300 s, also those of longer streams | refuses | yes |
//! | [limitador](https://github.com/Kuadrant/limitador) | all or none for reservations | holds, then commits the use | a hold ends after at most 60 s and counts nothing | refuses | no |
//! | [envoy's ratelimit](https://github.com/envoyproxy/ratelimit) | each for itself; all count a request that one refuses | counts, and can subtract later | the count stays until its window ends | refuses | no |
//!
//! tower_governor spreads its units over time, as this crate does, and tensorzero returns them in whole intervals. The other
//! three count in fixed windows, so around the start of a window they grant up to twice the limit within a moment.
//!
//! # For operators
//!
//! - [`usage`](crate::Operate::usage) lists each budget with its spent and reserved units. A store [with
//!   holders](crate::memory::Builder::holders) also lists each reservation with its settled units.
//! - A revoked reservation counts as used, because its holder may have used it.
//! - The window is part of a budget's name: another window begins with nothing spent. A limit or a pause of a policy
//!   holds for all of its windows.
//! - `tower_semaphore.budget_units` counts the units that are reserved, spent, freed and lost. See
//!   [metrics](crate::observe#metrics).
