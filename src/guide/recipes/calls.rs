//! Calls: limits for the requests that *you* send.
//!
//! # One host
//!
//! [`GlobalConcurrencyLimitLayer`](crate::GlobalConcurrencyLimitLayer) makes a client that is ready when the limit has
//! room. Callers wait in a queue: in memory within a process, over Redis within the whole fleet.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http::Request;
//! use http_body_util::{BodyExt, Empty};
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_semaphore::{AcquireError, GlobalConcurrencyLimitLayer, RedisSemaphore};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
//!     let limit = GlobalConcurrencyLimitLayer::new(3, "example.org", semaphore)
//!         .with_wait(Duration::from_secs(30));
//!     let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
//!     let client = ServiceBuilder::new().layer(limit).service(http);
//!
//!     let request = Request::get("http://example.org/").body(Empty::new())?;
//!     let response = client.clone().oneshot(request).await?;
//!     if let Some(refusal) = response.extensions().get::<AcquireError>() {
//!         return Err(refusal.clone().into()); // never sent
//!     }
//!     let page = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
//!     println!("{} bytes", page.len());
//!     Ok(())
//! }
//! ```
//!
//! - A response holds its permit until its body has been read or dropped. Do not keep responses unread.
//! - Use a service soon after it is ready: an idle service gives its permit back after three to four seconds. `oneshot`
//!   on a clone, as here, does both steps in one.
//! - A refusal is a *response* with status 429 or 503, made here and never sent by the host. The extension
//!   distinguishes it.
//! - `with_cooldown` obeys the host's own `Retry-After` in all processes: [pauses](super::super::pauses).
//! - Put retries outside of the limit, so that each retry takes a new permit and the pause between two tries holds
//!   none.
//!
//! # Many hosts
//!
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) takes the key from each request. Its service is always
//! ready, and a request without room waits in the call:
//!
//! ```
//! use http::{Request, Response, request::Parts};
//! use std::{convert::Infallible, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_semaphore::{ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! fn host(parts: &Parts) -> Result<String, KeyError> {
//!     Ok(parts.uri.authority().ok_or("no host")?.to_string())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let http = tower::service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
//! let limit = ConcurrencyLimitLayer::new(3, host, MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(30));
//! let client = ServiceBuilder::new().layer(limit).service(http);
//!
//! let request = Request::get("http://example.org/").body(String::new()).unwrap();
//! assert_eq!(client.clone().oneshot(request).await.unwrap().status(), 200);
//! # }
//! ```
//!
//! The example `crawler` has a global limit for each host, obeys the host's `Retry-After`, and lets two processes share
//! both.
//!
//! # One of several upstreams
//!
//! Several accounts serve the same requests. [`counts`](crate::Operate::counts) orders them by their free room, and the
//! request takes the first that admits it. If all are full, it waits at the first of them:
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{
//!     AcquireError, Claim, MemorySemaphore, Operate, Permit, Policy, Semaphore, semaphore::StoredKey,
//! };
//!
//! const UPSTREAM: Policy = Policy::from_static("upstream");
//!
//! struct Account {
//!     name: &'static str,
//!     limit: u32,
//! }
//!
//! struct Accounts {
//!     store: MemorySemaphore,
//!     all: Vec<Account>,
//! }
//!
//! impl Accounts {
//!     async fn by_room(&self) -> Vec<&Account> {
//!         let keys: Vec<_> = self.all.iter().map(|account| StoredKey::whole(account.name)).collect();
//!         let counts = self.store.counts(&UPSTREAM, &keys).await.unwrap_or_default(); // in an outage: as listed
//!         let claimed = |at: usize| counts.get(at).map_or(0, |key| key.units + key.waiting);
//!         let mut order: Vec<_> = self.all.iter().enumerate().collect();
//!         order.sort_by_key(|(at, account)| i64::from(claimed(*at)) - i64::from(account.limit));
//!         order.into_iter().map(|(_, account)| account).collect()
//!     }
//!
//!     async fn acquire(&self, wait: Duration) -> Result<(&Account, Permit), AcquireError> {
//!         let claim = |account: &Account| Claim::new(account.name).with_policy(UPSTREAM).with_limit(account.limit);
//!         let (mut first_full, mut closed) = (None, None);
//!         for account in self.by_room().await {
//!             match self.store.acquire(claim(account)).await {
//!                 Ok(permit) => return Ok((account, permit)),
//!                 Err(AcquireError::Full { .. }) => first_full = first_full.or(Some(account)),
//!                 Err(error @ (AcquireError::Paused { .. } | AcquireError::KeyClosed { .. })) => closed = Some(error),
//!                 Err(error) => return Err(error),
//!             }
//!         }
//!         let Some(account) = first_full else {
//!             return Err(closed.expect("an account"));
//!         };
//!         let permit = self.store.acquire(claim(account).with_wait(wait)).await?;
//!         Ok((account, permit))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let all = vec![Account { name: "a", limit: 1 }, Account { name: "b", limit: 2 }];
//! let accounts = Accounts { store: MemorySemaphore::new(), all };
//! # let wait = Duration::from_secs(5);
//! # let mut held = Vec::new();
//! # for expected in ["b", "a", "b"] {
//! #     let (account, permit) = accounts.acquire(wait).await.unwrap();
//! #     assert_eq!(account.name, expected);
//! #     held.push(permit);
//! # }
//! # let (waited, ()) = tokio::join!(accounts.acquire(wait), async { drop(held.remove(1)) });
//! # let (account, permit) = waited.unwrap();
//! # assert_eq!(account.name, "a");
//! # permit.pause(UPSTREAM, Duration::from_secs(60), "429").await.unwrap();
//! # drop((permit, held.pop()));
//! # assert_eq!(accounts.acquire(wait).await.unwrap().0.name, "b", "the other is paused");
//! # }
//! ```
//!
//! - The order costs a further call. A store in Redis has at most 32 such calls in flight, and needs the
//!   [right for `counts`](super::super::deploy).
//! - Processes that read the order at the same moment may choose the same account. If it is full then, the request goes
//!   on to the next account.
//! - The request waits at one account, also if another has room first. The example `gateway` waits at all accounts, and
//!   takes the first that grants.
//! - [Pause](crate::Permit::pause) an account that answers 429. Then the next requests go to other accounts. If all are
//!   paused or closed, the request is refused at once.
//! - The order counts with the limits in the code. An operator's limit changes who is admitted, but not the order.
//!
//! # Refusals as errors
//!
//! Both layers above answer a refused request with a *response*. Around a client whose caller handles errors, and around
//! services that are not HTTP, use [`LimitLayer`](crate::LimitLayer). A refusal is then an error with an
//! [`AcquireError`](crate::AcquireError) in its chain. For a generated client of tonic:
//!
//! ```
//! # use std::convert::Infallible;
//! # struct PricesClient<T>(T);
//! # impl<T> PricesClient<T> where T: tower::Service<http::Request<String>, Response = http::Response<tower_semaphore::ResponseBody<String>>> { fn new(inner: T) -> Self { Self(inner) } }
//! # let channel = tower::service_fn(async |_: http::Request<String>| Ok::<_, Infallible>(http::Response::new(String::new())));
//! use tower::Layer;
//! use tower_semaphore::{LimitLayer, MemorySemaphore};
//!
//! let upstream = |_: &http::Request<_>| "prices";
//! let limit = LimitLayer::new(20, upstream, MemorySemaphore::new()).with_http_bodies();
//! let client = PricesClient::new(limit.layer(channel));
//! # drop(client.0);
//! ```
//!
//! The client reports a refusal as a `Status` with the code `Unknown`. If you pass that on to your own clients, give it the
//! code of a refusal first: `AcquireError::find_in(&status)` finds the error, and
//! [`Rejection`](crate::Rejection#grpc) lists the codes.
//!
//! # A call inside a handler
//!
//! A handler that calls an upstream acquires a permit itself, and [`hold`](crate::hold) keeps it until the response's
//! body ends. [`Rejection::of`](crate::Rejection::of) answers if the limit has no room. Its response has the form of
//! the layers' refusals, with a `Retry-After` of 1 s. Nothing reads the rest of a refused upload, so read the body
//! first if clients send much.
//!
//! Use a separate policy for the claim. Otherwise an account with the upstream's name would share its semaphore.
//!
//! ```
//! use axum::{body::Body, extract::{Request, State}, response::Response};
//! use std::time::Duration;
//! use tower_semaphore::{Claim, MemorySemaphore, Rejection, ResponseBody, Semaphore, hold};
//!
//! async fn forward(
//!     State(store): State<MemorySemaphore>,
//!     request: Request,
//! ) -> Result<Response<ResponseBody<Body>>, Rejection> {
//!     let (parts, body) = request.into_parts();
//!     let claim = Claim::new("upstream-1").with_policy("upstream").with_limit(8);
//!     let claim = claim.with_wait(Duration::from_secs(1));
//!     let permit = store.acquire(claim).await.map_err(|error| Rejection::of(&error, &parts))?;
//!     let response = send(Request::from_parts(parts, body)).await;
//!     Ok(hold(response, permit))
//! }
//! # async fn send(_: Request) -> Response { Response::default() }
//! # let app = axum::Router::new().route("/", axum::routing::any(forward));
//! # let app: axum::Router = app.with_state(MemorySemaphore::new());
//! # drop(app);
//! ```
//!
//! # A service that calls itself
//!
//! A request of an account holds a permit, and calls the same service for the same account, directly or through other
//! services. At the limit each inner request waits for the permit of an outer request, and each outer request waits for
//! its inner request. All of them stand still until a wait is over. A separate policy for each depth excludes that: a
//! request waits only for deeper requests, and the deepest requests send none. A header has the depth:
//!
//! ```
//! use axum::{Router, body::Body, http::{HeaderMap, Request, request::Parts}, routing::get};
//! use std::time::Duration;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! const DEEPEST: u16 = 2;
//!
//! fn depth(headers: &HeaderMap) -> Result<u16, KeyError> {
//!     let Some(depth) = headers.get("x-call-depth") else {
//!         return Ok(0);
//!     };
//!     let depth = depth.to_str().ok().and_then(|depth| depth.parse::<u16>().ok());
//!     let depth = depth.filter(|depth| *depth <= DEEPEST).ok_or("x-call-depth is not valid")?;
//!     Ok(depth)
//! }
//!
//! fn claim(parts: &Parts) -> Result<Claim, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("x-account-id is missing")?;
//!     let claim = Claim::new(account);
//!     Ok(match depth(&parts.headers)? {
//!         0 => claim,
//!         depth => claim.with_policy(format!("depth-{depth}")),
//!     })
//! }
//!
//! /// Builds the inner request that the handler of a request with the headers `outer` sends.
//! fn inner_request(outer: &HeaderMap, path: &str) -> Result<Request<Body>, Box<dyn std::error::Error>> {
//!     let request = Request::get(path).header("x-account-id", &outer["x-account-id"]);
//!     Ok(request.header("x-call-depth", depth(outer)? + 1).body(Body::empty())?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use axum::http::StatusCode;
//! # use std::sync::OnceLock;
//! # use tower::ServiceExt;
//! # static SERVICE: OnceLock<Router> = OnceLock::new();
//! # async fn report(headers: HeaderMap) -> StatusCode {
//! #     if depth(&headers) == Ok(DEEPEST) {
//! #         return StatusCode::OK;
//! #     }
//! #     let request = inner_request(&headers, "/report").unwrap();
//! #     SERVICE.get().unwrap().clone().oneshot(request).await.unwrap().status()
//! # }
//! let limit = ConcurrencyLimitLayer::new(1, claim, MemorySemaphore::new()).with_wait(Duration::from_secs(2));
//! let app: Router = Router::new().route("/report", get(report)).layer(limit);
//! # SERVICE.set(app.clone()).unwrap();
//! # let send = |depth: u16| {
//! #     let request = Request::get("/report").header("x-account-id", "ann").header("x-call-depth", depth);
//! #     app.clone().oneshot(request.body(Body::empty()).unwrap())
//! # };
//! # assert_eq!(send(0).await.unwrap().status(), 200, "three requests of one account, within a limit of 1");
//! # assert_eq!(send(DEEPEST + 1).await.unwrap().status(), 400);
//! # }
//! ```
//!
//! - Services in between pass the header on, as they do with the headers of a trace.
//! - Remove the header from requests of clients, at the proxy. Otherwise a client gets a further limit with each depth.
//! - At each depth an account may have *limit* requests in flight. If you exempt inner requests instead, with an
//!   extractor that returns `None`, they are under no limit at all.
//! - A request deeper than `DEEPEST` gets 400. Without a bound, a cycle of calls would not end.
//! - The layer answers [nested limits](crate::ConcurrencyLimitLayer#nested-limits) of one request with 500. It cannot
//!   detect a call to itself, because the inner request is a separate request.
#![cfg_attr(not(doctest), doc = include_str!("reqwest.md"))]
