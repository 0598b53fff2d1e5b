//! Servers of the Model Context Protocol (MCP).
//!
//! One limit for all requests of an MCP server has two faults. A client at its limit cannot cancel a call or close its
//! session, because these are requests too. And the stream that a client opens with GET holds a permit for as long as
//! the session lasts. So count requests by what they do:
//!
//! ```
//! use axum::{Router, body::Body, http::{Method, Request, request::Parts}, routing::any};
//! use tower::ServiceExt;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! fn claim(parts: &Parts) -> Result<Option<Claim>, KeyError> {
//!     let account = parts.headers.get("x-account-id").ok_or("x-account-id is missing")?;
//!     let claim = Claim::new(account);
//!     let method = parts.headers.get("mcp-method").map_or(&b""[..], |method| method.as_bytes());
//!     Ok(match parts.method {
//!         Method::DELETE => None, // closes the session
//!         Method::GET => Some(claim.with_policy("streams").with_limit(2)),
//!         _ if method.starts_with(b"notifications/") => Some(claim.with_policy("notifications").with_limit(20)),
//!         _ => Some(claim),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, claim, MemorySemaphore::new());
//! let app: Router = Router::new().route("/mcp", any(|| async { "{}" })).layer(limit);
//! # let send = |method: Method, name: &str| {
//! #     let request = Request::builder().method(method).uri("/mcp").header("x-account-id", "ann");
//! #     app.clone().oneshot(request.header("mcp-method", name).body(Body::empty()).unwrap())
//! # };
//! # let status = async |method, name| send(method, name).await.unwrap().status();
//! # let stream = send(Method::GET, "").await.unwrap();
//! # let call = send(Method::POST, "tools/call").await.unwrap();
//! # assert_eq!([stream.status(), call.status()], [200, 200]);
//! # assert_eq!(status(Method::POST, "tools/call").await, 429);
//! # assert_eq!(status(Method::POST, "notifications/cancelled").await, 200);
//! # assert_eq!(status(Method::DELETE, "").await, 200);
//! # drop((stream, call));
//! # }
//! ```
//!
//! - Clients of the revision 2026-07-28 send `Mcp-Method`, and neither GET nor DELETE. Older ones send no `Mcp-Method`,
//!   so their notifications count as calls.
//! - A client can send any header. So notifications have a limit too, and no exemption.
//!
//! # A limit for each tool
//!
//! A tool that renders a video needs a lower limit than a tool that searches. Clients of the revision 2026-07-28 send
//! the tool's name in `Mcp-Name`. A call then has two claims, of the tool and of the account:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, request::Parts}, routing::post};
//! use tower::ServiceExt;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};
//!
//! fn claims(parts: &Parts) -> Result<Vec<Claim>, KeyError> {
//!     let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
//!     let account = header("x-account-id").ok_or("x-account-id is missing")?;
//!     let mut claims = Vec::new();
//!     if header("mcp-method") == Some("tools/call") {
//!         let (tool, limit) = match header("mcp-name") {
//!             Some("render") => ("render", 1),
//!             Some("search") => ("search", 3),
//!             _ => ("other", 4),
//!         };
//!         claims.push(Claim::new(format!("{account}/{tool}")).with_policy("tool").with_limit(limit));
//!     }
//!     claims.push(Claim::new(account));
//!     Ok(claims)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(5, claims, MemorySemaphore::new());
//! let app: Router = Router::new().route("/mcp", post(|| async { "{}" })).layer(limit);
//! # let call = async |account: &str, tool: &str| {
//! #     let request = Request::post("/mcp").header("x-account-id", account).header("mcp-method", "tools/call");
//! #     app.clone().oneshot(request.header("mcp-name", tool).body(Body::empty()).unwrap()).await.unwrap()
//! # };
//! # let held = [call("ann", "render").await, call("ann", "search").await, call("bob", "render").await];
//! # assert!(held.iter().all(|response| response.status() == 200));
//! # let refused = call("ann", "render").await;
//! # assert_eq!(refused.status(), 429);
//! # assert!(refused.headers()["ratelimit"].to_str().unwrap().starts_with(r#""tool";r=0"#));
//! # assert_eq!(call("ann", "search").await.status(), 200);
//! # }
//! ```
//!
//! - A client chooses the header. Tools without a limit in the code share one key, so an unknown name opens no further
//!   limit. A server of this revision refuses a header that differs from the body. In front of an older server, let a
//!   middleware read the name from the body, and insert the [`Claims`](crate::Claims) for
//!   [`from_extension`](crate::key::from_extension).
//! - A name with characters outside of ASCII arrives as `=?base64?…?=`. Match that text.
//! - If a tool is scarce for all accounts together, add a third claim behind these two, such as
//!   `Claim::new("render").with_policy("fleet").with_limit(8)`.
//! - A refusal is HTTP's 429, not an answer of JSON-RPC. `with_rejection` sets another body.
//!
//! # Tools that go on
//!
//! A tool may run on after its client has hung up and its response has been dropped. Then it should keep its permit.
//! Otherwise a client can start any number of tools. The permit is in the request's extensions:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use tower_semaphore::Permit;
//!
//! async fn call(permit: Permit) -> String {
//!     let tool = tokio::spawn(async move {
//!         let answer = tool().await;
//!         drop(permit);
//!         answer
//!     });
//!     tool.await.unwrap_or_default()
//! }
//! # async fn tool() -> String { "42".to_owned() }
//! # drop(axum::Router::<()>::new().route("/", axum::routing::post(call)));
//! # }
//! ```
//!
//! With rmcp a tool takes its `RequestContext`, whose extensions have the `http::request::Parts` of the request; their
//! extensions have the permit: `parts.extensions.get::<Permit>().cloned()`.
