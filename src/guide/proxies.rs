//! Behind proxies: nginx, HAProxy, load balancers, and platforms that freeze a process.
//!
//! `tests/proxies` checks these statements with nginx 1.22 and HAProxy 2.6. For limits by address see
//! [addresses behind proxies](super::recipes::keys#an-address-behind-proxies). In short, for nginx:
//!
//! ```text
//! upstream app {
//!     server 10.0.0.1:3000 max_fails=0;
//!     server 10.0.0.2:3000 max_fails=0;
//! }
//! server {
//!     client_max_body_size 8m;    # at most the bytes of `with_max_drain`
//!     location / {
//!         proxy_pass http://app;
//!         proxy_http_version 1.1; # the default since nginx 1.30
//!         proxy_read_timeout 60s; # longer than every wait
//!     }
//! }
//! ```
//!
//! # Uploads that are refused
//!
//! If an HTTP/1.1 server answers before it has read a request, the connection is reset. Many clients then never see the
//! 429, and nginx answers with 502. So the layer reads the rest of a refused upload and drops it, up to
//! [`with_max_drain`](crate::ConcurrencyLimitLayer::with_max_drain). Larger uploads should be refused by nginx itself.
//!
//! # Servers that count as failed
//!
//! By default nginx sends nothing to a server for 10 s after one failure (`max_fails=1`). A timeout or a reset of a
//! single account's request counts as a failure. Once both servers count as failed, *all* requests get 502. With
//! `max_fails=0` only the request that meets a failure fails.
//!
//! # Waits
//!
//! A waiting request is silent. If [`with_wait`](crate::ConcurrencyLimitLayer::with_wait) is longer than
//! `proxy_read_timeout` (60 s by default), or HAProxy's `timeout server`, the client gets 504. nginx also repeats a GET
//! at the next server, where it waits again, and counts a failure of each server. For longer waits, [answer first and
//! then wait](super::recipes::streams#bytes-to-a-client-that-waits).
//!
//! # Clients that hang up
//!
//! A waiting request leaves the queue when the server notices that its client has hung up. The server does not notice
//! in these cases:
//!
//! - **An unread upload.** hyper stops reading after about 16 kB, so it does not see the end of the connection. Read
//!   the body outside of the limit, as below, and bound its size.
//! - **A pipelined request** behind the request that waits.
//! - **A client of HAProxy**, unless its `defaults` or `listen` have `option abortonclose`.
//!
//! ```
//! use axum::{Router, body::to_bytes, extract::Request, http::StatusCode, middleware::{self, Next}, response::Response, routing::post};
//! use std::time::Duration;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! async fn read_first(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let (parts, body) = request.into_parts();
//!     let body = to_bytes(body, 1 << 20).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
//!     Ok(next.run(Request::from_parts(parts, body.into())).await)
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(10));
//! let app: Router = Router::new()
//!     .route("/import", post(|body: String| async move { body }))
//!     .layer(limit)
//!     .layer(middleware::from_fn(read_first));
//! # drop(app);
//! ```
//!
//! # Responses that the proxy buffers
//!
//! nginx reads a response as fast as the service sends it, and keeps up to 1 GB of it in files. So the permit of a
//! download ends long before the client has read the response, and events arrive in batches of some kilobytes. The
//! header `X-Accel-Buffering: no` on the response turns that off, and so does `proxy_buffering off`:
//!
//! ```
//! use axum::{body::Body, response::IntoResponse};
//!
//! async fn export() -> impl IntoResponse {
//!     ([("x-accel-buffering", "no")], rows())
//! }
//! # fn rows() -> Body { Body::empty() }
//! # drop(export());
//! ```
//!
//! # Responses that are cut
//!
//! [`OnLost::Abort`](crate::OnLost), a crash and the end of the time for a graceful shutdown cut a response. Over
//! HTTP/1.0, nginx's default before 1.30, the end of the connection ends a response. nginx then passes the incomplete
//! response on as a *whole* one. With `proxy_http_version 1.1` the client sees that the response was cut.
//!
//! # HTTP/2 to the service
//!
//! Each waiting request takes one of its connection's streams: 200 with hyper's defaults. If a proxy or a gRPC client
//! shares one connection between accounts, an account that fills it blocks the requests of all others. So set
//! [`with_max_waiting`](crate::ConcurrencyLimitLayer::with_max_waiting) to a small part of the 200 streams, such as 50.
//! In nginx each waiting request takes two of the `worker_connections` (512 by default).
//!
//! # Restarts
//!
//! Three things make requests fail while processes restart one by one:
//!
//! - `max_fails`: the first process is back, but nginx ignores it for 10 s. The second process stops in this time.
//! - The backlog: a dropped listener resets the connections that it has not accepted yet.
//! - Idle connections: a server that stops gracefully closes connections on which no request has begun. nginx may just
//!   have sent a request on one of them.
//!
//! nginx repeats a failed GET at another server, but answers a failed POST with 502. So at SIGTERM:
//!
//! 1. Accept the connections that wait in the listener, then close it.
//! 2. Answer for a quarter of a second with `Connection: close`.
//! 3. Begin the graceful shutdown of the [chapter on outages](super::outages#deploys).
//!
//! `shutdown.rs` of the example `market` has the code. On a busy machine, 40 restarts under load made 40 of 1,731 POSTs
//! fail without this sequence, and none of 5,116 with it. With `keepalive` in `upstream`, 51 of 1,699 failed without
//! it, and none of 4,439 with it.
//!
//! # Processes that are frozen
//!
//! A platform such as AWS Lambda freezes a process as soon as it has sent its response. The release of a dropped permit
//! then waits until the process continues, or until the lease ends. If responses do not stream, wait for the release
//! *inside* of the limit:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, extract::Request, middleware::{self, Next}, response::Response, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Permit, key};
//!
//! async fn release(permit: Permit, request: Request, next: Next) -> Response {
//!     let response = next.run(request).await;
//!     permit.release().await;
//!     response
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new()
//!     .route("/report", get(|| async { "report" }))
//!     .layer(middleware::from_fn(release))
//!     .layer(limit);
//! # drop(app);
//! # }
//! ```
//!
//! In tests with SIGSTOP right after the response, the permit was always free (`tests/http/over_redis/frozen.rs`). A
//! process that is frozen while it *holds* a permit loses it when the lease ends.
