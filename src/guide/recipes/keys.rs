//! Keys: plans that are looked up, an account or else an address, routes, addresses behind proxies.
//!
//! # A plan that is looked up
//!
//! An extractor cannot await anything. So a middleware outside of the limit looks the account's plan up, and leaves a
//! [`Claim`](crate::Claim) for [`key::from_extension`](crate::key::from_extension):
//!
//! ```
//! use axum::{Router, extract::{Request, State}, http::StatusCode, middleware::{self, Next}, response::Response, routing::get};
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! #[derive(Clone)]
//! struct Plans; // a database behind a cache, because each request reads it, even if it is refused
//!
//! impl Plans {
//!     async fn limit(&self, account: &str) -> Result<u32, StatusCode> {
//!         Ok(if account == "ann" { 20 } else { 1 })
//!     }
//! }
//!
//! async fn plan(State(plans): State<Plans>, mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let account = request.headers().get("x-account-id").and_then(|account| account.to_str().ok());
//!     let account = account.ok_or(StatusCode::UNAUTHORIZED)?;
//!     let claim = Claim::new(account).with_limit(plans.limit(account).await?);
//!     request.extensions_mut().insert(claim);
//!     Ok(next.run(request).await)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::from_extension::<Claim>(), MemorySemaphore::new());
//! let app: Router = Router::new()
//!     .route("/items", get(|| async { "items" }))
//!     .layer(limit)
//!     .layer(middleware::from_fn_with_state(Plans, plan)); // after the limit, so outside of it
//! # use tower::ServiceExt;
//! # let send = |account: &str| {
//! #     let request = Request::get("/items").header("x-account-id", account);
//! #     app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap())
//! # };
//! # let held = [send("ann").await.unwrap(), send("ann").await.unwrap(), send("bob").await.unwrap()];
//! # assert!(held.iter().all(|answer| answer.status() == 200));
//! # assert_eq!(send("bob").await.unwrap().status(), 429);
//! # assert_eq!(held[0].headers()["ratelimit"], r#""concurrency";r=19"#);
//! # }
//! ```
//!
//! Without that middleware, or with it inside of the limit, a request is answered with 500, because the mistake is the
//! service's and not the client's. For several limits insert [`Claims`](crate::Claims).
//!
//! # An account, or else an address
//!
//! [`key::first_of`](crate::key::first_of) takes the first key that is there. Each extractor has a separate policy, so
//! an account named `192.0.2.1` does not share the limit of that address:
//!
//! ```
//! use axum::{Router, extract::{ConnectInfo, Request}, routing::get};
//! use std::net::SocketAddr;
//! use tower_semaphore::{ConcurrencyLimitLayer, Key, KeyExtractor, MemorySemaphore, key};
//!
//! /// Authentication inserts it into the extensions of requests that have an account.
//! #[derive(Clone)]
//! struct Account(String);
//!
//! impl From<Account> for Key {
//!     fn from(account: Account) -> Self {
//!         account.0.into()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let anonymous = key::peer_ip().map_claim(|claim| claim.with_policy("anonymous").with_limit(1));
//! let key = key::first_of((key::from_extension::<Account>(), anonymous));
//! let limit = ConcurrencyLimitLayer::new(2, key, MemorySemaphore::new());
//! let app: Router = Router::new().route("/items", get(|| async { "items" })).layer(limit);
//! // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//! # use tower::ServiceExt;
//! # let send = |account: Option<&str>| {
//! #     let mut request = Request::get("/items").body(axum::body::Body::empty()).unwrap();
//! #     request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 50_000))));
//! #     account.map(|account| request.extensions_mut().insert(Account(account.to_owned())));
//! #     app.clone().oneshot(request)
//! # };
//! # let anonymous = send(None).await.unwrap();
//! # assert_eq!(anonymous.headers()["ratelimit"], r#""anonymous";r=0"#);
//! # assert_eq!(send(None).await.unwrap().status(), 429);
//! # let same = send(Some("192.0.2.1")).await.unwrap();
//! # assert_eq!(same.headers()["ratelimit"], r#""concurrency";r=1"#);
//! # }
//! ```
//!
//! Only an absent key leads to the next extractor. An empty or repeated one is refused, so no client gets a second
//! limit by a header that is wrong. If authentication itself refuses requests without an account, this is not needed.
//!
//! # A route
//!
//! [`key::matched_path`] is the route that axum has matched, `/items/{id}`. The path of the
//! request would be another key for each item:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::matched_path(), MemorySemaphore::new()).with_policy("route");
//! let app: Router = Router::new().route("/items/{id}", get(|| async { "item" })).route_layer(limit);
//! # use tower::ServiceExt;
//! # let send = |path: &str| app.clone().oneshot(http::Request::get(path).body(axum::body::Body::empty()).unwrap());
//! # let first = send("/items/1").await.unwrap();
//! # assert_eq!([first.status(), send("/items/2").await.unwrap().status()], [200, 429]);
//! # }
//! ```
//!
//! # An address behind proxies
//!
//! Each proxy appends the address of its peer to `X-Forwarded-For`; the client can choose everything before that. So
//! count from the end, one address for each of *your* proxies, and pass that address to
//! [`key::peer_ip`](crate::key::peer_ip):
//!
//! ```
//! use axum::{Router, extract::Request, http::StatusCode, middleware::{self, Next}, response::Response, routing::get};
//! use std::net::{IpAddr, SocketAddr};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! /// How many proxies a request passes, which all append to the header.
//! const PROXIES: usize = 2;
//!
//! fn client(request: &Request) -> Option<IpAddr> {
//!     let values = request.headers().get_all("x-forwarded-for").iter();
//!     let values: Vec<_> = values.map(|value| value.to_str().unwrap_or_default()).collect();
//!     values.join(",").rsplit(',').nth(PROXIES - 1)?.trim().parse().ok()
//! }
//!
//! async fn forwarded(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let client = client(&request).ok_or(StatusCode::BAD_REQUEST)?; // has not passed the proxies
//!     request.extensions_mut().insert(SocketAddr::new(client, 0)); // what `peer_ip` reads first
//!     Ok(next.run(request).await)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::peer_ip(), MemorySemaphore::new());
//! let app: Router = Router::new()
//!     .route("/items", get(|| async { "items" }))
//!     .layer(limit)
//!     .layer(middleware::from_fn(forwarded));
//! # use tower::ServiceExt;
//! # let send = |forwarded: &str| {
//! #     let request = Request::get("/items").header("x-forwarded-for", forwarded);
//! #     app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap())
//! # };
//! # let held = send("192.0.2.1, 10.0.0.1").await.unwrap();
//! # assert_eq!(held.status(), 200);
//! # for forged in ["198.51.100.7, 192.0.2.1, 10.0.0.1", "192.0.2.1,10.0.0.2"] {
//! #     assert_eq!(send(forged).await.unwrap().status(), 429);
//! # }
//! # assert_eq!(send("192.0.2.2, 10.0.0.1").await.unwrap().status(), 200);
//! # assert_eq!(send("10.0.0.1").await.unwrap().status(), 400);
//! # }
//! ```
//!
//! The number is right only if each request passes all of the proxies.
//!
#![cfg_attr(feature = "axum", doc = include_str!("../links/axum.md"))]
#![cfg_attr(not(feature = "axum"), doc = include_str!("../links/docs_rs.md"))]
