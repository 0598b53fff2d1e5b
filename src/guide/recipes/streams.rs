//! Streams: events, WebSockets, downloads, and bytes to a client that waits.
//!
//! # Server-sent events
//!
//! The body of the response is the stream, so the layer does all there is to do. A client that has vanished without
//! closing its connection is noticed when something is written to it, hence the keep-alive. [`with_max_stall`] ends
//! the permit of a client that is there and does not read:
//!
//! ```
//! use axum::{Router, response::sse::{Event, KeepAlive, Sse}, routing::get};
//! use futures_util::Stream;
//! use std::{convert::Infallible, time::Duration};
//! use tokio_stream::StreamExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
//!     let ticks = tokio_stream::iter(0..).throttle(Duration::from_secs(1));
//!     let events = ticks.map(|n: u64| Ok(Event::default().data(n.to_string())));
//!     Sse::new(events).keep_alive(KeepAlive::default())
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_max_stall(Duration::from_secs(60));
//! let app: Router = Router::new().route("/events", get(events)).layer(limit);
//! # drop(app);
//! ```
//!
//! [`with_max_stall`]: crate::ConcurrencyLimitLayer::with_max_stall
//!
//! # WebSockets
//!
//! The body of an upgrade's response ends at once, so the *handler* has to keep the permit, which is an extractor
//! with the feature `axum`. Move it into the task of the socket, which also should end when the permit is lost:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, extract::ws::{WebSocket, WebSocketUpgrade}, response::Response, routing::get};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Permit, key};
//!
//! async fn socket(upgrade: WebSocketUpgrade, permit: Permit) -> Response {
//!     upgrade.on_upgrade(move |socket| async move {
//!         tokio::select! {
//!             () = talk(socket) => {}
//!             () = permit.lost() => {} // the socket is dropped, which closes it
//!         }
//!         // The permit is dropped here: on a close, an error, a loss, and on a panic too.
//!     })
//! }
//!
//! async fn talk(mut socket: WebSocket) {
//!     while let Some(Ok(message)) = socket.recv().await {
//!         if socket.send(message).await.is_err() {
//!             return;
//!         }
//!     }
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//! let app: Router = Router::new().route("/socket", get(socket)).layer(limit);
//! # drop(app);
//! # }
//! ```
//!
//! A client whose machine has vanished sends no close. Send pings, and end `talk` when none is answered for some
//! time: a client that sends something else does not need to read. Set the upgrade's `max_frame_size` and
//! `max_write_buffer_size` too: axum keeps frames of up to 16 MiB, and without end the pongs that a client does
//! not read. A graceful shutdown does not wait for sockets; tell them of it yourself.
//!
//! # Downloads
//!
//! A download holds its permit while the client reads, so it is the *client's* speed that decides how long.
//! Send chunks: a server takes a body in one piece into its buffers at once, and the permit is gone before the
//! client has read a byte.
//!
//! ```
//! use axum::{Router, body::Body, http::StatusCode, routing::get};
//! use futures_util::stream;
//! use std::{io, time::Duration};
//! use tokio::{fs::File, io::AsyncReadExt};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, key};
//!
//! async fn download() -> Result<Body, StatusCode> {
//!     let file = File::open("report.pdf").await.map_err(|_| StatusCode::NOT_FOUND)?;
//!     let chunks = stream::try_unfold(file, async |mut file| {
//!         let mut chunk = vec![0; 64 * 1_024];
//!         let read = file.read(&mut chunk).await?;
//!         chunk.truncate(read);
//!         Ok::<_, io::Error>((read > 0).then_some((chunk, file)))
//!     });
//!     Ok(Body::from_stream(chunks))
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(2, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_policy("downloads")
//!     .with_max_stall(Duration::from_secs(30))
//!     .with_on_lost(OnLost::Abort);
//! let app: Router = Router::new().route("/report", get(download).layer(limit));
//! # drop(app);
//! ```
//!
//! With `OnLost::Abort` a download that has stalled for half a minute is cut, and does not go on beside the limit.
//! A file server such as tower-http's `ServeDir` streams by itself, and needs only the layer.
//!
//! # Bytes to a client that waits
//!
//! A request in the layer's queue sends nothing, and a proxy may cut it. For waits of minutes answer at once, and
//! wait inside the stream:
//!
//! ```
//! use axum::{extract::State, response::{IntoResponse, sse::{Event, KeepAlive, Sse}}};
//! use std::{convert::Infallible, sync::Arc, time::Duration};
//! use tokio::sync::mpsc;
//! use tokio_stream::wrappers::ReceiverStream;
//! use tower_semaphore::{Claim, Semaphore};
//!
//! async fn report(State(semaphore): State<Arc<dyn Semaphore>>) -> impl IntoResponse {
//!     let (events, receiver) = mpsc::channel(8);
//!     tokio::spawn(async move {
//!         let claim = Claim::new("reports").with_limit(4).with_wait(Duration::from_secs(600));
//!         let answer = tokio::select! {
//!             answer = semaphore.acquire(claim) => answer,
//!             () = events.closed() => return, // hung up: leaves the queue
//!         };
//!         let event = match answer {
//!             Ok(_permit) => Event::default().event("report").data(compute().await),
//!             Err(error) => Event::default().event("refused").data(error.to_string()),
//!         };
//!         let _ = events.send(Ok::<_, Infallible>(event)).await;
//!     });
//!     // Sends a comment each 15 s while there is nothing to say.
//!     Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default())
//! }
//! # async fn compute() -> String { "42".to_owned() }
//! # let _: axum::Router<Arc<dyn Semaphore>> = axum::Router::new().route("/", axum::routing::get(report));
//! ```
//!
//! The status is 200 by then, so a refusal has to be an event.
