//! Callers in other languages: a permit that an HTTP response holds.
//!
//! A script or a service in another language takes part in a limit through one route. The response to
//! `GET /permits/{key}` begins when the permit is granted, and its body does not end. The caller gives the permit back
//! when it closes the connection, or when it dies:
//!
//! ```
//! use axum::{Router, body::Body, extract::{Path, State}, http::request::Parts, routing::get};
//! use futures_util::stream;
//! use std::{convert::Infallible, time::Duration};
//! use tokio::time::interval;
//! use tower_semaphore::{Claim, MemorySemaphore, Rejection, Semaphore};
//!
//! async fn permit(
//!     State(store): State<MemorySemaphore>,
//!     Path(key): Path<String>,
//!     parts: Parts,
//! ) -> Result<Body, Rejection> {
//!     let claim = Claim::new(key).with_policy("permits").with_limit(1).with_wait(Duration::from_secs(30));
//!     let permit = store.acquire(claim).await.map_err(|error| Rejection::of(&error, &parts))?;
//!     let held = (permit, interval(Duration::from_secs(5)));
//!     let lines = stream::unfold(held, |(permit, mut ticks)| async move {
//!         tokio::select! {
//!             () = permit.lost() => None, // ends the body
//!             _ = ticks.tick() => {
//!                 let token = permit.token().unwrap_or_default();
//!                 Some((Ok::<_, Infallible>(format!("{token}\n")), (permit, ticks)))
//!             }
//!         }
//!     });
//!     Ok(Body::from_stream(lines))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use tokio::{io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines}, net::{TcpListener, TcpStream}};
//! let store = MemorySemaphore::new(); // or one in Redis, which services in Rust share
//! let app: Router = Router::new().route("/permits/{key}", get(permit)).with_state(store.clone());
//! # let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! # type Client = Lines<BufReader<TcpStream>>;
//! # let ask = async || -> std::io::Result<Client> {
//! #     let mut client = BufReader::new(TcpStream::connect(address).await?);
//! #     client.write_all(b"GET /permits/reports HTTP/1.0\r\n\r\n").await?;
//! #     Ok(client.lines())
//! # };
//! # async fn token(client: &mut Client) -> Result<u64, Box<dyn std::error::Error>> {
//! #     while !client.next_line().await?.expect("a head").is_empty() {}
//! #     Ok(client.next_line().await?.expect("a line").parse()?)
//! # }
//! # let mut first = ask().await?;
//! # let before = token(&mut first).await?;
//! # let full = store.acquire(Claim::new("reports").with_policy("permits").with_limit(1)).await;
//! # assert!(full.is_err());
//! # let mut second = ask().await?;
//! # drop(first);
//! # assert!(token(&mut second).await? > before);
//! # Ok(()) }
//! ```
//!
//! In bash, curl holds the permit while the work runs. `-N` passes each line on at once, and `-f` turns a refusal into
//! the end of the output:
//!
//! ```sh
//! coproc permit { exec curl -sfN http://127.0.0.1:3000/permits/reports; }
//! read -r token <&"${permit[0]}" || exit 1 # refused
//! ./report --token "$token"
//! kill "$permit_PID"
//! ```
//!
//! - The body ends early if the permit is lost or the server stops. Then the caller has to stop its work. The line is
//!   the [fencing token](super::locks), for work that must not go on after a loss.
//! - The line is repeated, so that the server notices a caller that has vanished, and curl a script that was killed.
//!   The end of a whole machine is noticed when TCP gives up, which takes minutes. To bound that, call
//!   [`end_after`](crate::Permit::end_after) with the longest time that the work may take.
//! - Each permit and each waiter keeps a connection. A proxy in between must not buffer the response. Its timeouts have
//!   to be longer than the wait, and than the time between two lines.
//! - Any caller of the route gets permits of any key. Authenticate the callers, and take the limits from a table of
//!   known keys.
//! - All callers depend on this server. Run two of them over one Redis.
