//! Choose a limit: how many requests, counted by what, and what happens to the rest.
//!
//! # How many are in flight anyway: Little's law
//!
//! The mean number of requests in flight is their rate times the mean time that each takes, to the end of its body:
//! *L = λ W*. It is true for any order and any distribution of the requests.
//!
//! | what | rate λ | time W | in flight L |
//! |---|---|---|---|
//! | an API's requests | 200/s | 0.15 s | 30 |
//! | one account's dashboard | 4/s | 0.5 s | 2 |
//! | event streams | 2/s | 60 s | 120 |
//! | exports | 1 in 30 s | 45 s | 1.5 |
//!
//! Two numbers follow from what you measure. The *resource's* limit is where it stops becoming faster: raise the load
//! in a test, and take the number in flight at which throughput is flat and only the time grows. The *account's* limit
//! is what a well-behaved account needs at its busiest, plus spare room for random peaks. The amount of spare room
//! depends on what happens to a request that finds none.
//!
//! # Refuse: how much room random peaks need
//!
//! With *L* in flight on average and arrivals at random, the fraction of requests that finds a limit
//! of *c* full, and is refused, is Erlang's B formula:
//!
//! ```
//! /// The fraction that is refused, if `load` requests would be in flight on average without a limit.
//! fn refused(load: f64, limit: u32) -> f64 {
//!     (1..=limit).fold(1.0, |b, n| load * b / (f64::from(n) + load * b))
//! }
//!
//! let percent = |load, limit| format!("{:.2}", 100.0 * refused(load, limit));
//! assert_eq!([3, 5, 8].map(|limit| percent(2.0, limit)), ["21.05", "3.67", "0.09"]);
//! assert_eq!([30, 40, 50].map(|limit| percent(30.0, limit)), ["13.25", "1.44", "0.02"]);
//! ```
//!
//! An account with 2 requests in flight on average is refused one request in 27 by a limit of 5, and one in 1,200 by a
//! limit of 8. A large service needs less room in proportion: 30 in flight under a limit of 40 are refused less often
//! than 2 under a limit of 5. A client that always sends six requests at once is not random: it needs six.
//!
//! # Wait: how long, and how many
//!
//! A claim that may wait joins its key's queue. Let *hold* be the mean time for which a permit is held. With random
//! arrivals and exponentially distributed holds, a claim that has to wait does so for *hold ÷ (limit − L)* on average
//! (Erlang's C). For any distribution, a full limit frees one place per *hold ÷ limit*:
//!
//! ```
//! let (hold, load, limit) = (0.1, 4.0, 5.0); // seconds, requests
//! let mean_wait: f64 = hold / (limit - load);
//! assert!((mean_wait - 0.1).abs() < 1e-9);
//!
//! // A claim behind more waiters than this is not granted within 2 s, on average.
//! let longest_queue: f64 = 2.0 / (hold / limit);
//! assert!((longest_queue - 100.0).abs() < 1e-9);
//! ```
//!
//! So [`with_max_waiting`](crate::ConcurrencyLimitLayer::with_max_waiting) should be about
//! *wait × limit ÷ hold*. Its default is 100. A longer queue only holds requests that will time out: they cost a
//! connection, memory and polls, and are refused in the end. hyper runs 200 requests at a time on an HTTP/2
//! connection, so 200 waiters on one connection block all its other requests.
//!
//! | | refuse at once (default) | wait |
//! |---|---|---|
//! | fits | clients that retry by themselves; interactive requests; long streams | short bursts of short requests; clients that cannot retry; jobs |
//! | costs | a retry, with its own delay | an open connection, a heartbeat each twelfth of a lease, or each 5 s if that is sooner |
//! | order | none: a free place goes to the next request that arrives | first come, first served, over all processes |
//!
//! - If holds are long, waiting does not help: an account whose five streams last a minute frees a place every 12 s.
//! - Keep the wait shorter than the timeouts of the client and of [the proxies in between](super::proxies#waits). Some
//!   hang-ups [are not noticed](super::proxies#clients-that-hang-up). Then the wait bounds how long such a request
//!   stays in the queue.
//! - A claim that does not wait never passes a waiting claim. So if some requests of a key wait, requests that do not
//!   wait are refused until the queue is empty.
//! - With 50 claims at a limit of 5, all were granted in the order of their arrival, 1.6 % later than is theoretically
//!   possible. Each claim took 2.6 commands (BENCHMARKS.md, "The queue").
//!
//! # Counted by what
//!
//! | a limit per | protects | key |
//! |---|---|---|
//! | account | accounts from each other | [`key::from_extension`](crate::key::from_extension), [`key::header`](crate::key::header) |
//! | address | a service that knows no accounts | [`key::peer_ip`](crate::key::peer_ip), [for some clients](super::recipes::keys#an-account-or-else-an-address) |
//! | route | one expensive part | [`key::matched_path`] |
//! | tenant, model | one expensive part | a closure |
//! | fleet | what all share: a database, a budget | [`key::fixed`](crate::key::fixed) |
//! | host that you call | others from you | [`GlobalConcurrencyLimitLayer`](crate::GlobalConcurrencyLimitLayer) |
//!
//! A limit per account alone does not protect the service: a thousand accounts with a limit of five may send five
//! thousand requests at once. A limit for the fleet alone lets one account take it all. Most services want both:
//! [several limits](super::order).
//!
//! # Weights: requests that are not equal
//!
//! Give a request that costs as much as three others a weight of 3. The limit then counts units that you choose: rows,
//! tokens or megabytes. A weight is 1 to [`MAX_WEIGHT`](crate::semaphore::MAX_WEIGHT). In Redis a permit of weight *w*
//! is *w* members of a set, so choose units that keep weights in the tens. A claim heavier than its limit could never
//! be granted and is answered with 400.
//!
//! ```
//! use http::request::Parts;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! // Twenty units for each account, forty if it pays; an export takes ten.
//! fn claim(parts: &Parts) -> Result<Claim, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("no account")?;
//!     let limit = if parts.headers.contains_key("x-paid") { 40 } else { 20 };
//!     let weight = if parts.uri.path() == "/export" { 10 } else { 1 };
//!     Ok(Claim::new(account).with_limit(limit).with_weight(weight))
//! }
//!
//! let layer = ConcurrencyLimitLayer::new(20, claim, MemorySemaphore::new());
//! # drop(layer);
//! ```
//!
//! If the cost is known only while the work runs, claim the greatest possible weight, and
//! [`resize`](crate::Permit::resize) the permit downwards. A cost per minute, such as the tokens of an answer, belongs
//! in a [budget](super::budgets).
//!
//! # The lease and the timeout (Redis)
//!
//! | setting | default | what it decides | what a greater value costs |
//! |---|---|---|---|
//! | [`lease`](crate::redis::Builder::lease) | 10 s | a killed process's permits are free after this time; a shorter outage loses no permit | the wait after a crash |
//! | [`timeout`](crate::redis::Builder::timeout) | 250 ms | the longest time of one call; a claim that does not wait is answered within two timeouts | a slower 503 when Redis hangs |
//!
//! - Each permit is refreshed three times per lease, so one lost refresh does no harm. After a kill −9
//!   permits were free in 9.8 to 9.9 s of a lease of 10 s (BENCHMARKS.md, "Peers").
//! - A dead waiter holds its queue up for a quarter of a lease at most, with the default settings.
//! - A longer lease hardly saves anything: 10,000 permits of 2,000 keys cost 11.4 commands/s at 10 s
//!   (BENCHMARKS.md, "Permits that are held").
//! - A process that is *paused* for longer than a lease, by a debugger or a suspended machine, loses its permits. A
//!   process whose threads are merely blocked keeps them, because the keeper has a separate thread.
//! - The timeout is at most a third of the lease. Raise it where Redis is far away; processes that share limits should
//!   have the same timeout.
//!
//! # Bounds for holders
//!
//! | setting | ends the permit of |
//! |---|---|
//! | [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) | a client that reads none of its response, or sends less than a kibibyte of its request, in this time |
//! | [`with_max_hold`](crate::ConcurrencyLimitLayer::with_max_hold) | any request, after this time |
//!
//! Both end only the permit. The request continues without a permit, unless
//! [`OnLost::Abort`](crate::OnLost) ends it too: with 503 before the response's head, and by cutting the body after it.
//!
#![cfg_attr(feature = "axum", doc = include_str!("links/axum.md"))]
#![cfg_attr(not(feature = "axum"), doc = include_str!("links/docs_rs.md"))]
