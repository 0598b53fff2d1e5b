//! Streams: events, `EventSource`, the newest wins, WebSockets, downloads, uploads, and bytes to a client that waits.
//!
//! # Server-sent events
//!
//! The body of the response is the stream, so the layer needs no help from the handler. The server notices that a
//! client has vanished without closing its connection only when it writes to the client, so the stream has a
//! keep-alive. [`with_max_stall`] ends the permit of a client that is connected and does not read:
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
//! # `EventSource`
//!
//! A browser's `EventSource` gives up permanently after a 429, but connects again when a stream ends. So refuse with an
//! empty stream that sets the browser's time to reconnect. A page that reloads opens its new stream before the server
//! has seen the end of the old stream, so let requests wait for a second or two:
//!
//! ```
//! use axum::{Router, body::{Body, to_bytes}, http::{Request, header::CONTENT_TYPE}, response::{IntoResponse, Response}, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Rejection, key};
//!
//! fn come_back(rejection: Rejection) -> Response {
//!     match rejection.retry_after() {
//!         Some(time) => {
//!             let retry = format!("retry: {}\n\n", time.as_millis());
//!             ([(CONTENT_TYPE, "text/event-stream")], retry).into_response()
//!         }
//!         None => rejection.into_response().into_response(), // another attempt would not help
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let limit = ConcurrencyLimitLayer::new(1, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_wait(Duration::from_secs(2))
//!     .with_rejection(come_back);
//! let app: Router = Router::new().route("/events", get(|| async { "data: 1\n\n" }).layer(limit));
//! # let send = || {
//! #     let request = Request::get("/events").header("x-account-id", "ann").body(Body::empty());
//! #     app.clone().oneshot(request.unwrap())
//! # };
//! # let held = send().await.unwrap();
//! # let refused = send().await.unwrap();
//! # assert_eq!(refused.status(), 200);
//! # let body = to_bytes(refused.into_body(), 100).await.unwrap();
//! # assert!(body.starts_with(b"retry: ") && body.ends_with(b"000\n\n"));
//! # drop(held);
//! # }
//! ```
//!
//! - Give this layer to the routes of events only. It shares its permits with other layers that have the same store and
//!   policy.
//! - Behind nginx events need [`X-Accel-Buffering: no`](super::super::proxies#responses-that-the-proxy-buffers).
//!
//! # The newest wins
//!
//! A user who opens a stream on a second device often does not need the first any more. Instead of refusing the new
//! stream, end the user's oldest: [`usage`](crate::Operate::usage) lists the oldest permit first, and
//! [`revoke`](crate::Operate::revoke) ends it in whichever process it is held.
//!
//! ```
//! use axum::{Router, extract::{Path, State}, http::request::Parts, response::sse::{Event, KeepAlive, Sse}, routing::get};
//! use futures_util::{Stream, StreamExt, stream};
//! use std::{convert::Infallible, time::Duration};
//! use tokio::time::interval;
//! use tokio_stream::wrappers::IntervalStream;
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Operate, Permit, Policy, Rejection, Semaphore};
//!
//! const STREAMS: Policy = Policy::from_static("streams");
//!
//! /// A permit for a new stream of a user.
//! async fn acquire_newest(store: &MemorySemaphore, user: &str) -> Result<Permit, AcquireError> {
//!     let claim = Claim::new(user).with_policy(STREAMS).with_limit(2);
//!     loop {
//!         let full = match store.acquire(claim.clone()).await {
//!             Err(full @ AcquireError::Full { .. }) => full,
//!             answer => return answer,
//!         };
//!         let usage = store.usage(&STREAMS, claim.key()).await?;
//!         let oldest = usage.held.first().ok_or(full)?;
//!         store.revoke(&STREAMS, claim.key(), &oldest.id).await?;
//!     }
//! }
//!
//! async fn events(
//!     State(store): State<MemorySemaphore>,
//!     Path(user): Path<String>,
//!     parts: Parts,
//! ) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
//!     let permit = acquire_newest(&store, &user).await.map_err(|error| Rejection::of(&error, &parts))?;
//!     let ticks = IntervalStream::new(interval(Duration::from_secs(1)));
//!     let events = ticks.map(|_| Event::default().data("tick"));
//!     let events = events.take_until(async move { permit.lost().await });
//!     let replaced = stream::once(async { Event::default().event("replaced").data("by a newer stream") });
//!     Ok(Sse::new(events.chain(replaced).map(Ok::<_, Infallible>)).keep_alive(KeepAlive::default()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use axum::{body::{Body, to_bytes}, http::Request};
//! # use tower::ServiceExt;
//! let store = MemorySemaphore::builder().holders(true).build(); // without it `usage` lists no permits
//! let app: Router = Router::new().route("/users/{user}/events", get(events)).with_state(store.clone());
//! # let open = async || {
//! #     let request = Request::get("/users/ann/events").body(Body::empty()).unwrap();
//! #     app.clone().oneshot(request).await.unwrap()
//! # };
//! # let [first, _second, _third] = [open().await, open().await, open().await];
//! # let end = to_bytes(first.into_body(), 1_000).await.unwrap();
//! # assert_eq!(end, "event: replaced\ndata: by a newer stream\n\n");
//! # assert_eq!(store.usage(&STREAMS, &"ann".into()).await.unwrap().held.len(), 2);
//! # }
//! ```
//!
//! - A browser's `EventSource` connects again when a stream ends, and would end the newer stream in turn. So the page
//!   has to close it on the event `replaced`.
//! - The old stream has to end when its permit is lost, as here. Under a layer, [`OnLost::Abort`](crate::OnLost::Abort)
//!   ends it, without an event.
//! - A permit is also lost if Redis is away for longer than its lease. Then the page gets `replaced` too, and does not
//!   connect again by itself.
//! - Over Redis a new stream takes three calls more if it ends another. The process of the old stream is notified at
//!   once, or a third of a lease later if the message is lost.
//! - In Redis `usage` needs a [further right](super::super::deploy). It reads all permits of the user, so this is for
//!   limits of a few streams.
//!
//! # WebSockets and tunnels
//!
//! The body of an upgrade's response ends at once, so the *handler* has to keep the permit. With the feature `axum` it
//! extracts the permit. Move the permit into the task of the socket, which should also end when the permit is lost:
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
//! A client whose machine has vanished sends no close. Send pings, and end `talk` when none is answered for some time.
//! Other messages do not prove that the client reads. Set the upgrade's `max_frame_size` and `max_write_buffer_size`
//! too: axum keeps frames of up to 16 MiB, and any number of pongs that a client does not read. A graceful shutdown
//! does not wait for sockets, so notify them yourself.
//!
//! Over HTTP/2 a WebSocket is a CONNECT request with the status 200 (RFC 8441), and the handler above serves it too: route
//! it with axum's `any` instead of `get`. The same is true of every tunnel: a 101, or a 2xx to CONNECT, has an empty body,
//! so the layer alone limits nothing. `hyper::upgrade::on` consumes the request, and drops the permit with it. Take the
//! permit out first, and move it into the task of the tunnel:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Empty;
//! use hyper::body::Incoming;
//! use hyper_util::rt::TokioIo;
//! use std::convert::Infallible;
//! use tokio::{io::copy_bidirectional, net::TcpStream};
//! use tower::{Layer, service_fn};
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, Permit, key};
//!
//! async fn proxy(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
//!     let permit = request.extensions_mut().remove::<Permit>();
//!     let target = request.uri().authority().map(ToString::to_string).unwrap_or_default();
//!     let upgrade = hyper::upgrade::on(request);
//!     tokio::spawn(async move {
//!         if let (Ok(client), Ok(mut server)) = (upgrade.await, TcpStream::connect(target).await) {
//!             let _ = copy_bidirectional(&mut TokioIo::new(client), &mut server).await;
//!         }
//!         drop(permit);
//!     });
//!     Ok(Response::new(Empty::new()))
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//! let service = limit.layer(service_fn(proxy));
//! # drop(service);
//! ```
//!
//! hyper serves tunnels with `serve_connection_with_upgrades`, and extended CONNECT with `enable_connect_protocol`.
//! With the feature `tracing` the layer logs one warning if such a response ends while no task holds the permit. If a
//! task calls `upgrade::on` itself, it may drop the permit a moment later, and the layer does not notice that.
//!
//! # Downloads
//!
//! A download holds its permit while the client reads, so the *client's* speed decides how long. Send chunks: a server
//! takes a body in one piece into its buffers at once, and the permit ends before the client has read a byte.
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
//! With `OnLost::Abort` a download that has stalled for half a minute is cut, instead of continuing without a permit.
//! If the permit is lost before the response's head, the handler is dropped and the client gets 503. A response that
//! does not stream, such as a completion in one piece, has only this phase: its whole body is ready when the handler
//! returns. A file server such as tower-http's `ServeDir` streams by itself, and needs only the layer.
//!
//! # Uploads
//!
//! While a handler reads its request, the *client's* speed decides how long the permit is held. [`with_max_stall`]
//! bounds that too: a client loses its permit if the handler waits for its data, and it sends less than a kibibyte in
//! this time. With the feature `axum` the layer watches axum's bodies. For tonic and for hyper's `Incoming` put
//! [`RequestBody::watch`](crate::RequestBody::watch) inside of the limit:
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::BodyExt;
//! use hyper::{Error, body::Incoming};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//! use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, RequestBody, key};
//!
//! async fn upload(request: Request<RequestBody<Incoming>>) -> Result<Response<String>, Error> {
//!     let bytes = request.into_body().collect().await?.to_bytes();
//!     Ok(Response::new(format!("{} bytes", bytes.len())))
//! }
//!
//! let limit = ConcurrencyLimitLayer::new(2, key::header("x-account-id"), MemorySemaphore::new())
//!     .with_max_stall(Duration::from_secs(30))
//!     .with_on_lost(OnLost::Abort);
//! let service = ServiceBuilder::new()
//!     .layer(limit)
//!     .map_request(RequestBody::<Incoming>::watch)
//!     .service_fn(upload);
//! # drop(service);
//! ```
//!
//! In tonic, write
//! `Server::builder().layer(ServiceBuilder::new().layer(limit).map_request(RequestBody::watch).into_inner())`.
//!
//! # Bytes to a client that waits
//!
//! A request in the layer's queue sends nothing, and a proxy may cut it. For waits of minutes answer at once, wait
//! inside the stream, and send the client the number of waiters before it. [`usage`](crate::Operate::usage) lists the
//! queue in its order; a label that no other claim has identifies the request's own place:
//!
//! ```
//! use axum::{extract::State, response::{IntoResponse, sse::{Event, KeepAlive, Sse}}};
//! use std::{convert::Infallible, time::Duration};
//! use tokio::{sync::mpsc, time::interval};
//! use tokio_stream::wrappers::ReceiverStream;
//! use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Operate, Permit, Policy, Semaphore};
//! use uuid::Uuid;
//!
//! type Events = mpsc::Sender<Result<Event, Infallible>>;
//!
//! async fn report(State(store): State<MemorySemaphore>) -> impl IntoResponse {
//!     let (events, receiver) = mpsc::channel(8);
//!     tokio::spawn(async move {
//!         let answer = tokio::select! {
//!             answer = wait(&store, &events) => answer,
//!             () = events.closed() => return, // hung up: leaves the queue
//!         };
//!         let event = match answer {
//!             Ok(_permit) => Event::default().event("report").data(compute().await),
//!             Err(error) => Event::default().event("refused").data(error.to_string()),
//!         };
//!         let _ = events.send(Ok(event)).await;
//!     });
//!     Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default())
//! }
//!
//! /// Waits for a permit, and reports every two seconds the number of waiters before it.
//! async fn wait(store: &MemorySemaphore, events: &Events) -> Result<Permit, AcquireError> {
//!     let label = Uuid::new_v4().to_string();
//!     let claim = Claim::new("reports").with_limit(4).with_wait(Duration::from_secs(600));
//!     let mut permit = store.acquire(claim.with_label(label.clone()));
//!     let mut ticks = interval(Duration::from_secs(2));
//!     loop {
//!         tokio::select! {
//!             biased; // joins the queue before it looks for its place
//!             answer = &mut permit => return answer,
//!             _ = ticks.tick() => {}
//!         }
//!         let usage = store.usage(&Policy::DEFAULT, &"reports".into()).await;
//!         let waiting = usage.map(|usage| usage.waiting).unwrap_or_default();
//!         let place = waiting.iter().position(|claim| claim.label.as_ref() == Some(&label));
//!         if let Some(before) = place {
//!             let comment = Event::default().comment(format!("{before} before you"));
//!             let _ = events.try_send(Ok(comment)); // dropped if the client does not read
//!         }
//!     }
//! }
//! # async fn compute() -> String { "42".to_owned() }
//! #
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use tokio::{io::{AsyncBufReadExt, AsyncWriteExt, BufReader}, net::{TcpListener, TcpStream}};
//! # let store = MemorySemaphore::new();
//! # let app = axum::Router::new().route("/", axum::routing::get(report)).with_state(store.clone());
//! # let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! # let claim = Claim::new("reports").with_limit(4).with_wait(Duration::from_secs(600));
//! # let mut held = Vec::new();
//! # for _ in 0..4 {
//! #     held.push(store.acquire(claim.clone()).await?);
//! # }
//! # let before: Vec<_> = (0..3).map(|_| tokio::spawn(store.acquire(claim.clone()))).collect();
//! # tokio::task::yield_now().await;
//! # let mut client = BufReader::new(TcpStream::connect(address).await?);
//! # client.write_all(b"GET / HTTP/1.1\r\nhost: reports\r\n\r\n").await?;
//! # let mut lines = client.lines();
//! # while lines.next_line().await?.expect("more") != ": 3 before you" {}
//! # drop(before);
//! # held.clear();
//! # while lines.next_line().await?.expect("more") != "data: 42" {}
//! # Ok(()) }
//! ```
//!
//! - A client sees the comment `: 3 before you`. An event instead of a comment would reach a browser's `EventSource`.
//! - `usage` reads all permits and waiters of the key, so call it every few seconds, not more often. It works over
//!   [`RedisSemaphore`](crate::RedisSemaphore) in the same way, for the queue of the whole fleet.
//! - The status 200 has been sent already, so a refusal has to be an event.
