//! Servers: axum, hyper, tonic.
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
//! Clone the layer, not its parts: all services of one layer, and all layers of one store, policy and key, share
//! their permits.
#![cfg_attr(not(doctest), doc = include_str!("tonic.md"))]
