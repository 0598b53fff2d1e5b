//! The promises of a limit in Redis, and the cases that they do not cover.
//!
//! `TESTING.md` in the repository lists the test files that show each promise.
//!
//! # Promises
//!
//! Those about a store in Redis hold within one history of its data: without lost writes, flush or eviction.
//!
//! Limits:
//!
//! - **P1** At any instant of the server's clock, the unexpired permits of a key hold at most *limit* units.
//! - **P2** A lowered limit ends no permit, and grants nothing until it has room.
//! - **P3** A claim under several limits gets a permit of each or of none. On one
//!   server no other client ever sees a part of it.
//! - **P4** Each holder has its own deadline on a monotonic clock. A lost permit is reported at that deadline at the
//!   latest, even when the process is cut off from Redis.
//! - **P5** Fencing tokens of a key strictly increase.
//! - **P6** Refresh and release affect only their own permit. A command that is repeated, delayed or lost counts once
//!   or not at all. An acquire carries a deadline by the server's clock and is refused after that; an acquire whose
//!   outcome is unknown is always released.
//! - **P7** Distinct keys, and distinct policies, have distinct semaphores, whatever bytes the keys contain.
//!
//! Ends:
//!
//! - **P8** A killed process's permits are free when their leases end, 10 s by default.
//! - **P9** A permit is held until the response's body ends, however it ends, and the body's frames stay as they are.
//!   Its end queues the release at once.
//! - **P10** A cancelled acquire leaves nothing behind.
//! - **P11** A permit ends once, and its key, tasks, connections and memory are given back.
//!
//! Queues:
//!
//! - **P12** First come, first served for each key across processes. A claim that does not wait never passes the queue,
//!   and a heavy claim is not starved by lighter ones behind it.
//! - **P13** A dead waiter holds the queue up for a quarter of a lease at most with the default settings.
//! - **P14** Every wait ends, and every queue is bounded.
//! - **P15** Each release wakes the waiters that it grants, and no others.
//! - **P16** Flows take turns in the ratio of their shares.
//! - **P17** A paused key grants nothing until the pause ends. Then its waiters are granted in their order.
//!
//! Failures:
//!
//! - **P18** When Redis fails, a new request is answered with 503 within half a second, never with "limit reached"; a
//!   request in the queue within a second and a half, with the default settings. After a few failures in a row, at
//!   once: nothing but a probe is sent until Redis is back.
//! - **P19** With [`when_unavailable`](crate::redis::Builder::when_unavailable) requests are admitted instead, all of
//!   them or each process's share of the limit. Such permits are acquired when Redis is back, and no response is ended.
//! - **P20** A wrong setting is an error that names it, before or at the first request, and no output shows a password.
//!
//! Clients:
//!
//! - **P21** A refused request gets its answer, also while it uploads: 429 or 503 with the fields of its limits, or a
//!   status of gRPC. No cache keeps it.
//! - **P22** A client that keeps to its limit is hardly ever refused, also by several processes in turn.
//! - **P23** A request ends with its permit if the layer is set so, before or after its response's head, and a permit
//!   is held no longer than the bounds of the layer allow.
//!
//! Operators:
//!
//! - **P24** Each permit and each waiter is listed once. A revocation ends the permit that it names and no other, and a
//!   limit that an operator sets is in force in all processes.
//! - **P25** Metrics count each request and permit once, and gauges return to zero. The documented metrics and log
//!   lines are the only ones.
//!
//! Budgets, in the store in memory:
//!
//! - **P26** A budget grants nothing unless its spent and reserved units leave room. Each use counts once, a claim that
//!   is refused or waits takes nothing, and every unit returns.
//!
//! # Not promised
//!
//! A lease does not bound work that is running. Each of the following can admit up to a whole limit of further
//! requests: a process that is paused for longer than its lease; a failover to a replica that lacks the last grants,
//! unless [`min_replicas`](crate::redis::Builder::min_replicas) is set; `FLUSHALL`; eviction (use
//! [`noeviction`](super::deploy#settings-of-the-server)); a server clock that jumps forward. In 200 failovers under
//! load to a replica 5 ms behind, 61 had more in flight than the limit, up to twice the limit (118 on a cluster, 89
//! under Sentinels); with `min_replicas(1)` none. The loss is reported to the holders about a third of a lease later,
//! and a lost permit is granted again if the limit has room and no claim waits. Protect a resource that must not suffer
//! from that with the permit's [fencing token](crate::Permit::token).
//!
//! Tokens are counted on the server. On a cluster a counter may restart below its last token if the clocks of two nodes
//! jump forward within five seconds, one of them far enough to let that node's counter expire. The counter restarts at
//! the highest server time that the claiming process knows, which may not include the other node's jump yet.
//!
//! On a cluster, while a slot moves, a claim may be refused because of a permit that its own process has just released:
//! the release reached a node that no longer had the keys, and the claim found them before the release was sent again.
//! It is sent again as soon as that node answers, so the next claim is not refused.
//!
//! A response in one chunk counts as ended when the server has taken that chunk, however slowly the
//! client reads it. A client that stops reading a stream keeps its permit until it hangs up, because
//! the body is no longer polled; [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) bounds that,
//! and also how long a handler waits for its request's body.
