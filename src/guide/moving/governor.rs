//! Moving from tower_governor.
//!
//! tower_governor limits a *rate*: a bucket of `burst_size` requests, refilled by one each period. This crate limits
//! *concurrency*: requests in flight. They answer different questions, and many services want both:
//!
//! | question | limit |
//! |---|---|
//! | May an account send a thousand cheap requests per second? | rate |
//! | May an account keep forty streams open, or forty slow queries running? | concurrency |
//!
//! A rate limit counts a request of 10 ms and one of 10 minutes alike. A concurrency limit lets an account send as fast
//! as it is served. By [Little's law](super::super::choose) a bucket that is refilled twice a second leads to 0.6
//! requests in flight if each takes 300 ms, and to 120 if each takes a minute. If slow requests are the reason for your
//! rate limit, replace it. If the number of requests is the reason, keep it, and add this limit inside.
//!
//! | tower_governor | here | what differs |
//! |---|---|---|
//! | `per_second`, `per_millisecond`, `period` | – | nothing is refilled: a place is free when a response has ended |
//! | `burst_size` | the limit | |
//! | `PeerIpKeyExtractor` (default) | [`key::peer_ip`](crate::key::peer_ip) | both read the peer's address of axum's `ConnectInfo`; here with the feature `axum` |
//! | `SmartIpKeyExtractor` | a closure | reads forwarded headers, so write down which proxy you trust |
//! | `GlobalKeyExtractor` | [`key::fixed`](crate::key::fixed) | |
//! | a custom `KeyExtractor` | a closure, or a custom [`KeyExtractor`](crate::KeyExtractor) | it may also set the limit and a weight, or exempt a request |
//! | `methods` | a closure that returns `None` for the others | |
//! | `use_headers`: `x-ratelimit-limit`, `-remaining` | always: `RateLimit-Policy`, `RateLimit` | fields of the RateLimit draft |
//! | `retry-after` and `x-ratelimit-after` | `Retry-After`, and `t` of `RateLimit` | a rate knows when the next request may come; a concurrency limit estimates |
//! | 429 when over the limit; 500 without a key | 429; 400 when the client left the key out, 500 when the service did | [what clients see](super::super::clients) |
//! | `error_handler` | [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) | |
//! | `limiter().retain_recent()` now and then | nothing | idle keys are forgotten |
//! | the memory of a process | [`MemorySemaphore`](crate::MemorySemaphore), [`RedisSemaphore`](crate::RedisSemaphore) | over Redis one limit for all processes |
#![cfg_attr(not(doctest), doc = include_str!("governor.md"))]
