//! Servers: axum, a limit that can be switched off, CORS, OpenAI's headers, connections, hyper, tonic, actix-web.
//!
//! # axum
//!
//! [Adopt it in five minutes](super::super::adopt) is the recipe. Two things more:
//!
//! - `route_layer` limits only requests that match a route, so that a 404 takes no permit.
//! - A handler may extract its [`Permit`](crate::Permit), with the feature `axum`. Where a layer may exempt a
//!   request, extract an `Option<Permit>`.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Permit, key};
//!
//! async fn left(permit: Permit) -> String {
//!     format!("{} of {} left", permit.remaining(), permit.limit())
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/left", get(left)).route_layer(limit);
//! # drop(app);
//! ```
//!
//! # A limit that can be switched off
//!
//! With an axum `Router`, write `if let Some(limit) = limit { app = app.layer(limit) }`. In a stack of layers, use
//! tower's `option_layer`. It needs the same type of response with and without the limit. `MapResponseLayer` provides
//! that:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, response::IntoResponse, routing::get};
//! use tower::{ServiceExt, util::{MapResponseLayer, option_layer}};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! fn app(limit: Option<u32>) -> Router {
//!     let limit = limit.map(|limit| {
//!         let limit = ConcurrencyLimitLayer::new(limit, key::header("x-account-id"), MemorySemaphore::new());
//!         (MapResponseLayer::new(IntoResponse::into_response), limit)
//!     });
//!     Router::new().route("/items", get(|| async { "items" })).layer(option_layer(limit))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let get = || Request::get("/items").header("x-account-id", "ann").body(Body::empty()).unwrap();
//! assert_eq!(app(None).oneshot(get()).await.unwrap().status(), 200);
//! assert_eq!(app(Some(0)).oneshot(get()).await.unwrap().status(), 429);
//! # }
//! ```
//!
//! To switch the limit off while the service runs, let the [extractor](crate::KeyExtractor) return `None`.
//!
//! # CORS
//!
//! The layer belongs *inside* of tower-http's `CorsLayer`, which in axum is added after it. Let pages read the fields of
//! a refusal:
//!
//! ```
//! use axum::{Router, body::Body, http::{Method, Request, header::RETRY_AFTER}, routing::get};
//! use tower::ServiceExt;
//! use tower_http::cors::{Any, CorsLayer};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let account = "x-account-id".parse().unwrap();
//! let cors = CorsLayer::new()
//!     .allow_origin(Any)
//!     .allow_headers([account])
//!     .expose_headers([RETRY_AFTER, "ratelimit".parse().unwrap(), "ratelimit-policy".parse().unwrap()]);
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/items", get(|| async { "items" })).layer(limit).layer(cors);
//!
//! let send = |request: http::request::Builder| {
//!     let request = request.uri("/items").header("origin", "https://shop.example").body(Body::empty());
//!     app.clone().oneshot(request.unwrap())
//! };
//! let held = send(Request::builder().header("x-account-id", "ann")).await.unwrap();
//!
//! let preflight = Request::builder().method(Method::OPTIONS).header("access-control-request-method", "GET");
//! let preflight = send(preflight).await.unwrap();
//! assert_eq!(preflight.status(), 200, "needs no account and no permit");
//!
//! let refused = send(Request::builder().header("x-account-id", "ann")).await.unwrap();
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["access-control-allow-origin"], "*", "so a page's script sees the 429");
//! # drop(held);
//! # }
//! ```
//!
//! The CORS layer answers a preflight itself, so it takes no permit. In the other order a preflight, which never has
//! the header of the account, is refused with 400, and the browser sends no request at all. With a key that each
//! request has, such as an address, a preflight takes a permit, and a refusal lacks `access-control-allow-origin`: the
//! page's script gets a network error instead of the 429 and its `Retry-After`.
//!
//! # OpenAI's headers
//!
//! Responses of OpenAI's API have three headers: the limit of requests per minute, how many are left, and the time
//! until the whole limit is available again. Such a limit is a [budget](super::super::budgets). A middleware inside of
//! the layer reads the numbers of an admitted request from its [`Permit`](crate::Permit). For a refused request, the
//! function given to `with_rejection` reads them from the [`Rejection`](crate::Rejection):
//!
//! ```
//! use axum::{Router, extract::Request, http::{HeaderMap, request::Parts}, middleware::{self, Next}, response::Response, routing::get};
//! use std::time::Duration;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore, Permit, Reason, Rejection};
//!
//! const WINDOW: Duration = Duration::from_secs(60);
//!
//! fn claim(parts: &Parts) -> Result<Claim, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("x-account-id is missing")?;
//!     Ok(Claim::new(account).with_window(WINDOW))
//! }
//!
//! fn add_fields(headers: &mut HeaderMap, limit: u32, remaining: u32) {
//!     let reset = WINDOW * limit.saturating_sub(remaining) / limit.max(1);
//!     let reset = format!("{}s", reset.as_millis().div_ceil(1_000));
//!     headers.insert("x-ratelimit-limit-requests", limit.into());
//!     headers.insert("x-ratelimit-remaining-requests", remaining.into());
//!     headers.insert("x-ratelimit-reset-requests", reset.try_into().expect("digits and a letter"));
//! }
//!
//! async fn admitted(permit: Permit, request: Request, next: Next) -> Response {
//!     let mut response = next.run(request).await;
//!     add_fields(response.headers_mut(), permit.limit(), permit.remaining());
//!     response
//! }
//!
//! fn refused(rejection: Rejection) -> Response<String> {
//!     let limit = rejection.limit();
//!     let is_full = matches!(rejection.reason(), Reason::Acquire { error, .. } if error.is_refusal());
//!     let mut response = rejection.into_response();
//!     if is_full {
//!         add_fields(response.headers_mut(), limit, 0);
//!     }
//!     response
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(2, claim, MemorySemaphore::new()).with_policy("requests");
//! let app: Router = Router::new()
//!     .route("/v1/models", get(|| async { "{}" }))
//!     .layer(middleware::from_fn(admitted)) // before the limit, so inside of it
//!     .layer(limit.with_rejection(refused));
//! # use tower::ServiceExt;
//! # let send = async || {
//! #     let request = Request::get("/v1/models").header("x-account-id", "ann");
//! #     let response = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
//! #     let names = ["limit", "remaining", "reset"].map(|name| format!("x-ratelimit-{name}-requests"));
//! #     let fields = names.map(|name| response.headers()[&name].to_str().unwrap().to_owned());
//! #     (response.status().as_u16(), fields.join(" "))
//! # };
//! # assert_eq!(send().await, (200, "2 1 30s".to_owned()));
//! # assert_eq!(send().await, (200, "2 0 60s".to_owned()));
//! # assert_eq!(send().await, (429, "2 0 60s".to_owned()));
//! # }
//! ```
//!
//! - OpenAI's own clients try again after `Retry-After`. The layer sends that header too, as the time until one request
//!   is admitted.
//! - A limit of requests in flight has no window, so leave the third header out. Time alone frees none of its units.
//! - For `x-ratelimit-limit-tokens` and its siblings claim a second budget, and read it from
//!   [`Permit::levels`](crate::Permit::levels). A rejection shows only the limit that refused.
//! - The numbers are those of the grant. Other requests may have changed them when the client reads them.
//!
//! # Connections of an address
//!
//! A client that opens connections and sends nothing is under no limit of requests. `axum::serve` takes any `Listener`.
//! This one acquires a permit before it returns a connection, and the connection owns the permit:
//!
//! ```
//! use axum::{Router, extract::ConnectInfo, routing::get, serve::{Listener, ListenerExt}};
//! use std::{io, net::SocketAddr, pin::Pin, task::{Context, Poll}};
//! use tokio::{io::{AsyncRead, AsyncWrite, ReadBuf}, net::{TcpListener, TcpStream}};
//! use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};
//!
//! struct LimitedListener {
//!     listener: TcpListener,
//!     store: MemorySemaphore,
//! }
//!
//! impl Listener for LimitedListener {
//!     type Io = Connection;
//!     type Addr = SocketAddr;
//!
//!     async fn accept(&mut self) -> (Connection, SocketAddr) {
//!         loop {
//!             let (socket, peer) = Listener::accept(&mut self.listener).await;
//!             let claim = Claim::new(peer.ip()).with_policy("connections").with_limit(1);
//!             if let Ok(permit) = self.store.acquire(claim).await {
//!                 return (Connection { socket, _permit: permit }, peer);
//!             } // otherwise the socket is dropped, which closes it
//!         }
//!     }
//!
//!     fn local_addr(&self) -> io::Result<SocketAddr> {
//!         self.listener.local_addr()
//!     }
//! }
//!
//! struct Connection {
//!     socket: TcpStream,
//!     _permit: Permit,
//! }
//!
//! impl AsyncRead for Connection {
//!     fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
//!         Pin::new(&mut self.socket).poll_read(cx, buffer)
//!     }
//! }
//!
//! impl AsyncWrite for Connection {
//!     fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
//!         Pin::new(&mut self.socket).poll_write(cx, bytes)
//!     }
//!
//!     fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
//!         Pin::new(&mut self.socket).poll_flush(cx)
//!     }
//!
//!     fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
//!         Pin::new(&mut self.socket).poll_shutdown(cx)
//!     }
//! }
//!
//! async fn peer(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
//!     peer.ip().to_string()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> io::Result<()> {
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! let store = MemorySemaphore::new();
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! let listener = LimitedListener { listener, store: store.clone() };
//! let app = Router::new().route("/", get(peer)).into_make_service_with_connect_info::<SocketAddr>();
//! let server = axum::serve(listener.tap_io(|_| {}), app); // axum knows the peers of a `TapIo`
//! # tokio::spawn(async move { server.await });
//! # let connect = async || {
//! #     let (mut client, mut answer) = (TcpStream::connect(address).await.unwrap(), [0; 15]);
//! #     let _ = client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await;
//! #     let is_served = client.read_exact(&mut answer).await.is_ok() && answer == *b"HTTP/1.1 200 OK";
//! #     (client, is_served)
//! # };
//! # let (first, is_served) = connect().await;
//! # assert!(is_served);
//! # assert!(!connect().await.1, "closed without an answer");
//! # drop(first);
//! # while store.busy_keys() > 0 {
//! #     tokio::task::yield_now().await;
//! # }
//! # assert!(connect().await.1);
//! # Ok(()) }
//! ```
//!
//! - A refused client sees a closed connection, and no 429. So set this limit well above the number of connections that
//!   good clients open, and limit requests by a layer.
//! - A connection keeps its permit while it is idle, and over HTTP/2 it may carry many requests.
//! - `accept` is called for one connection after the other. Here it does not wait, because the store is in memory. A
//!   store in Redis would delay all connections by a round trip each, and by its timeout in an outage.
//! - Behind a proxy all connections have the proxy's address, so set the limit in the proxy.
//! - Each IPv6 address counts by itself here, though a client has a network of them.
//!   [`key::peer_ip`](crate::key::peer_ip) counts such a network.
//! - Forward `poll_write_vectored` and `is_write_vectored` too, so that hyper does not copy large responses.
//!
//! # hyper
//!
//! The layer makes a tower service; hyper-util turns it into one of hyper's. The peer's address goes into the
//! request's extensions, where [`key::peer_ip`](crate::key::peer_ip) finds it:
//!
//! ```no_run
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use hyper::body::Incoming;
//! use hyper_util::{rt::{TokioExecutor, TokioIo}, server::conn::auto, service::TowerToHyperService};
//! use std::convert::Infallible;
//! use tower::ServiceBuilder;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! async fn items(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     Ok(Response::new("items".into()))
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let limit = ConcurrencyLimitLayer::new(5, key::peer_ip(), MemorySemaphore::new());
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     loop {
//!         let (socket, peer) = listener.accept().await?;
//!         let service = ServiceBuilder::new()
//!             .map_request(move |mut request: Request<Incoming>| {
//!                 request.extensions_mut().insert(peer);
//!                 request
//!             })
//!             .layer(limit.clone())
//!             .service_fn(items);
//!         tokio::spawn(async move {
//!             let server = auto::Builder::new(TokioExecutor::new());
//!             let service = TowerToHyperService::new(service);
//!             if let Err(error) = server.serve_connection(TokioIo::new(socket), service).await {
//!                 eprintln!("a connection ended early: {error}");
//!             }
//!         });
//!     }
//! }
//! ```
//!
//! Make the layer once and clone it for each connection. All its services share their permits, and so do all layers
//! with one store, policy and key.
#![cfg_attr(not(doctest), doc = include_str!("tonic.md"))]
#![cfg_attr(not(doctest), doc = include_str!("actix.md"))]
