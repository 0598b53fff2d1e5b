//! What a limit in Redis promises, and what it does not.
//!
//! `TESTING.md` in the repository says what shows each of these.
//!
//! # What holds
//!
//! Within one history of the data, without lost writes, flush or eviction:
//!
//! - At any instant of the server's clock at most *limit* unexpired permits of a key. A lowered limit grants
//!   nothing until there is room, and ends no permit.
//! - Each holder has its own deadline on a monotonic clock. Its permit is reported lost at that deadline at the latest, even
//!   when the process is cut off from Redis.
//! - Fencing tokens of a key strictly increase.
//! - Refresh and release affect only their own permit. A command that is repeated, delayed or lost counts once or
//!   not at all. An acquire carries a deadline by the server's clock and is refused after that; an acquire whose
//!   outcome is unknown is always released.
//! - Distinct keys have distinct semaphores, whatever bytes they contain.
//! - A killed process's permits are free when their leases end, 10 s by default. The end of a body queues the
//!   release at once. A cancelled acquire leaves nothing behind.
//! - First come, first served for each key across processes. A claim that does not wait never passes the queue, and
//!   a heavy claim is not starved by lighter ones behind it. A dead waiter holds the queue up for a quarter of a
//!   lease at most with the default settings. Each release wakes the waiters that it grants, and no others.
//! - When Redis fails, a new request is answered with 503 within half a second, never with "limit reached"; a
//!   request in the queue within a second and a half, with the default settings. After a few failures in a row, at
//!   once: nothing but a probe is sent until Redis is back. With
//!   [`when_unavailable`](crate::redis::Builder::when_unavailable) requests are admitted instead, all of them or
//!   each process's share of the limit; such permits are acquired when Redis is back, and no response is ended.
//!
//! # What does not
//!
//! A lease does not bound work that is running. Each of these can admit as many requests again as the limit: a
//! process that is paused for longer than its lease; a failover to a replica that lacks the last grants, unless
//! [`min_replicas`](crate::redis::Builder::min_replicas) is set; `FLUSHALL`; eviction (use
//! [`noeviction`](super::deploy#settings-of-the-server)); a server clock that jumps forward. In 200 failovers under
//! load to a replica 5 ms behind, 61 had more in flight than the limit, up to twice as many (118 on a cluster, 89
//! under Sentinels); with `min_replicas(1)` none. The loss is reported to the holders about a third of a lease
//! later, and a lost permit is granted again if there is room and no claim waits. Protect a resource that must not
//! suffer from that with the permit's [fencing token](crate::Permit::token).
//!
//! Tokens are counted on the server. On a cluster a counter may begin again below its last token if the clocks of two
//! nodes jump forward within five seconds, one by more than some leases: that forgets the counter, and no process that
//! claims there has learned of the other jump.
//!
//! On a cluster, while a slot moves, a claim may be refused beside a permit that its own process has just released: the
//! node that was to release it answered that the keys were on their way, or elsewhere, and a moment later the claim found
//! them. The release is sent again as soon as that answer comes, and the next claim is not refused for it.
//!
//! A response in one chunk counts as ended when the server has taken that chunk, however slowly the
//! client reads it. A client that stops reading a stream keeps its permit until it hangs up, because
//! the body is no longer polled; [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) bounds that,
//! and also how long a handler waits for its request's body.
