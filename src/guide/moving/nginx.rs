//! Moving from nginx's `limit_conn`.
//!
//! nginx counts the requests of a key that it is processing, to the end of the response, and refuses further requests
//! above the limit. So does this layer, with the same meaning of "in flight". It counts in the application instead of
//! the proxy, and a request may wait there.
//!
//! | nginx | here | what differs |
//! |---|---|---|
//! | `limit_conn_zone $binary_remote_addr zone=addr:10m` | [`key::peer_ip`](crate::key::peer_ip) and a store | no size to choose: a store forgets idle keys. nginx refuses all further requests when a zone is full |
//! | `limit_conn_zone $http_x_account_id …` | [`key::header`](crate::key::header), or better [`key::from_extension`](crate::key::from_extension) | the application knows who has authenticated |
//! | a request with an empty key is not counted | 400, unless the extractor returns `None` | forgetting the key is no way around the limit |
//! | `limit_conn addr 5` | `ConcurrencyLimitLayer::new(5, …)` | |
//! | several `limit_conn` | [several claims](crate::Claims), from narrow to wide | the refusal names its limit |
//! | `limit_conn_status 429` (503 by default) | 429, and 503 when the store failed | [`with_rejection`](crate::ConcurrencyLimitLayer::with_rejection) makes another response |
//! | `$limit_conn_status` in the access log | the reason in the response's extensions; [metrics and events](super::super::operate#metrics) | |
//! | `limit_conn_dry_run on` | [`with_shadow(true)`](crate::ConcurrencyLimitLayer::with_shadow) | [a rehearsal](super::super::operate#try-a-limit-before-it-bites) |
//! | each concurrent request of HTTP/2 and HTTP/3 counts | the same | |
//! | counted once the whole header has been read | the same: a request exists from then on | |
//!
//! Before:
//!
//! ```text
//! limit_conn_zone $http_x_account_id zone=account:10m;
//! limit_conn_zone $server_name       zone=all:1m;
//!
//! location /export {
//!     limit_conn        account 5;
//!     limit_conn        all     1000;
//!     limit_conn_status 429;
//!     proxy_pass        http://app;
//! }
//! ```
//!
//! After:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let limits = key::from_fn(|parts| {
//!     // As in nginx, a request without an account is under the other limit alone.
//!     let account = parts.headers.get("x-account-id");
//!     let account = account.map(|account| Claim::new(account).with_limit(5));
//!     let all = Claim::new("all").with_limit(1_000).with_policy("all");
//!     account.into_iter().chain([all]).collect::<Vec<_>>()
//! });
//! let layer = ConcurrencyLimitLayer::new(5, limits, MemorySemaphore::new());
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(layer);
//! # drop(app);
//! ```
//!
//! # Measured side by side
//!
//! (BENCHMARKS.md, "Peers": one client, nginx in front of the app, or this layer in it.)
//!
//! | | nginx, `limit_conn` | layer, memory | layer, Redis |
//! |---|---|---|---|
//! | requests/s with 16 connections, as a fraction of the app's alone | 0.39 | 0.95 | 0.26 |
//! | requests sent until all of 50 clients were admitted, at most 5 at once | 1,703, retrying | 50, waiting | 50, waiting |
//! | admitted by two servers under a limit of 5 | 10 | 10 | 5 |
//! | a permit is free after its client is killed | at once | at once | at once |
//! | a permit is free after the server is killed | not within 20 s: what a killed worker has counted stays | at once | 9.84 s: its lease |
//!
//! Most of nginx's cost in the first row is the cost of a proxy, not of the limit: without `limit_conn` the value is
//! 0.40. If a proxy is in front anyway, its limit is nearly free. Then a coarse `limit_conn` for each address in nginx
//! works well with this limit for each account in the application. [Behind proxies](super::super::proxies) shows how to
//! set nginx up for this.
