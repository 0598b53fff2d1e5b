//! Adopt it in five minutes, in an axum service.
//!
//! # 1. Add the layer
//!
//! ```sh
//! cargo add tower-semaphore --features axum
//! ```
//!
//! A limit has three parts: how many requests may be in flight, what they are counted by, and where
//! they are counted. Here these are five, the header `x-account-id`, and this process's memory:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let semaphore = MemorySemaphore::new();
//!     let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), semaphore);
//!     let app = Router::new()
//!         .route("/export", get(|| async { "rows" }))
//!         .layer(limit)
//!         // Added after the layer, so not limited.
//!         .route("/health", get(|| async { "ok" }));
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     axum::serve(listener, app).await
//! }
//! ```
//!
//! # 2. See it work
//!
//! A permit lasts as long as the response's *body*, so five responses that no client has read to the
//! end are five requests in flight. This test needs `cargo add tower --dev --features util`:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/export", get(|| async { "rows" })).layer(limit);
//! let export = |account: &str| {
//!     let request = Request::get("/export").header("x-account-id", account).body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//!
//! let mut unread = Vec::new();
//! for _ in 0..5 {
//!     unread.push(export("ann").await.unwrap());
//! }
//! assert_eq!(unread[1].headers()["ratelimit"], r#""concurrency";r=3"#);
//!
//! let sixth = export("ann").await.unwrap();
//! assert_eq!(sixth.status(), 429);
//! assert!(sixth.headers().contains_key("retry-after"));
//! assert_eq!(export("bob").await.unwrap().status(), 200, "each account has its own limit");
//!
//! drop(unread.pop());
//! assert_eq!(export("ann").await.unwrap().status(), 200, "a dropped body frees its permit");
//! # }
//! ```
//!
//! [What clients see](super::clients) describes the refusal, and how to replace it.
//!
//! # 3. Count on all machines together
//!
//! Replace the semaphore. The rest stays as it is:
//!
//! ```no_run
//! # async fn run() -> Result<(), tower_semaphore::redis::ConnectError> {
//! use tower_semaphore::{ConcurrencyLimitLayer, RedisSemaphore, key};
//!
//! let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), semaphore);
//! # drop(limit); Ok(()) }
//! ```
//!
//! A request now pays one round trip before its handler runs, and none after it. With the layer in memory, an axum app
//! that does nothing else kept 0.92 of its throughput, and over Redis 0.45. Client, app and Redis shared two cores
//! (BENCHMARKS.md, "HTTP"). On an idle connection a claim took 1.3 times as long as a Lua script that does nothing
//! (BENCHMARKS.md, "The store in Redis").
//!
//! ## In memory only
//!
//! A service that is one process needs no Redis. Then leave its client out:
//!
//! ```sh
//! cargo add tower-semaphore --no-default-features --features axum
//! ```
//!
//! The README's first service was built from 56 crates instead of 102, and its stripped release binary had 1.7 MB
//! instead of 4.4 (`cargo tree -e normal,build`, `cargo build --release` and `strip`, on x86-64 Linux). All of
//! [`MemorySemaphore`](crate::MemorySemaphore) is available without the default feature `redis`. To move to Redis
//! later, enable that feature and replace the semaphore as above.
//!
//! # 4. Put it in the right place
//!
//! In axum the layer that is added last runs first. From the outside in:
//!
//! 1. Tracing and panic handling, so that refusals are seen too.
//! 2. CORS, so that pages of other origins see refusals: [a recipe](super::recipes::servers#cors).
//! 3. Timeouts. A timeout outside of the limit bounds the wait for a permit too.
//! 4. Authentication, which knows the account and puts it into the request's extensions.
//! 5. This layer, which takes the account from there.
//! 6. Everything that costs something: body limits, decompression, handlers.
//!
//! A client that chooses its key at will can have any number of limits. So take the key from the result of
//! authentication, not from a header that the client sets:
//!
//! ```
//! use axum::{Router, extract::Request, middleware::{self, Next}, response::Response, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, Key, MemorySemaphore, key};
//!
//! #[derive(Clone)]
//! struct Account(u64);
//!
//! impl From<Account> for Key {
//!     fn from(account: Account) -> Self {
//!         account.0.into()
//!     }
//! }
//!
//! async fn authenticate(mut request: Request, next: Next) -> Response {
//!     request.extensions_mut().insert(Account(42)); // from a session, a token, …
//!     next.run(request).await
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::from_extension::<Account>(), MemorySemaphore::new());
//! let app: Router = Router::new()
//!     .route("/export", get(|| async { "rows" }))
//!     .layer(limit)
//!     .layer(middleware::from_fn(authenticate));
//! # drop(app);
//! ```
//!
//! [`key::peer_ip`](crate::key::peer_ip) reads the connection's peer and never a forwarded header, so behind a proxy
//! all requests have the proxy's address. In axum it needs
//! `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`: without that each request is
//! answered with 500, and with the feature `tracing` the log names the missing extension. In a test without a server,
//! add the layer `MockConnectInfo` to the router. [Recipes](super::recipes::keys) show plans that are looked up,
//! clients with and without an account, routes, and the addresses of clients behind proxies.
//!
//! # 5. Watch it in production
//!
//! - **Refusals.** Which accounts get 429, on which routes, and how often? A limit that refuses no request may be too
//!   high, and a limit that refuses a well-behaved client is too low: [choose a limit](super::choose).
//! - **503.** It means that the store failed, not that a limit is reached. Decide what should happen
//!   then, before it happens: [when Redis fails](super::outages).
//! - **Upgrades and background work.** The body of a WebSocket's response ends at once, and a task that
//!   goes on after the response holds nothing. Both have to keep the [permit](crate::Permit):
//!   [recipes](super::recipes::streams).
//! - **Clients that stop reading.** They look like slow ones and keep their permits until they hang up.
//!   [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) bounds that.
//! - **The proxy in front.** Its buffers, timeouts and failure counts change what a limit does:
//!   [behind proxies](super::proxies).
//! - **Redis.** `noeviction`, an access control list, and
//!   [`check`](crate::RedisSemaphore::check) in the health route: [deploy Redis](super::deploy).
//! - **The end of a process.** Drain the server, then call
//!   [`shutdown`](crate::RedisSemaphore::shutdown), so that no claim has to wait for the leases of a
//!   process that is gone: [deploys](super::outages#deploys).
