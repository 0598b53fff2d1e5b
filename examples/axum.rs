//! An account may have five requests in flight. The sixth gets 429 until the body of one of the five has ended.
//!
//! `curl -iN -H 'x-account-id: alice' http://127.0.0.1:3000/market`

use axum::{Router, body::Body, routing::get};
use std::{convert::Infallible, env, error::Error, time::Duration};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
    let app = Router::new().route("/market", get(market)).layer(limit);
    let port: u16 = env::var("PORT").as_deref().unwrap_or("3000").parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// Five items, one per second.
async fn market() -> Body {
    let items = tokio_stream::iter(1..=5).map(|n| Ok::<_, Infallible>(format!("item {n}\n")));
    Body::from_stream(items.throttle(Duration::from_secs(1)))
}
