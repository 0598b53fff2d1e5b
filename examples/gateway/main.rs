//! A gateway in front of a streaming completion API. It limits tokens per API key, per model and in total, and one step
//! decides for all limits.
//!
//! ```sh
//! cargo run --example gateway
//!
//! # Streams 40 words. Its weight shrinks while it does.
//! curl -N localhost:3000/v1/completions -H 'authorization: Bearer ann' \
//!   --json '{"model":"small","prompt":"tell me","max_tokens":40}'
//! # Two of these at once: the second is 429, since a key has 512 tokens.
//! curl -N localhost:3000/v1/completions -H 'authorization: Bearer ann' \
//!   --json '{"model":"small","prompt":"tell me","max_tokens":400}'
//! # Waits behind all interactive requests of the last 30 s.
//! curl -N localhost:3000/v1/completions -H 'authorization: Bearer bob' \
//!   --json '{"model":"small","prompt":"tell me","max_tokens":400,"service_tier":"batch"}'
//! ```
//!
//! With `REDIS_URL` set, all gateways share the limits. `limits.rs` has the claims and the refusal of a request,
//! `completion.rs` the request and the stream, and `upstream.rs` the fake model.

mod completion;
mod limits;
mod upstream;

use axum::{Router, middleware, routing::post};
use std::{env, error::Error, net::Ipv4Addr, sync::Arc};
use tokio::net::TcpListener;
use tower_semaphore::{MemorySemaphore, Semaphore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = env::var("PORT").map_or(Ok(3_000), |port| port.parse())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let app = Router::new()
        .route("/v1/completions", post(completion::stream))
        .layer(limits::layer(semaphore().await?))
        // The body is read outside the limits, because the claims depend on it.
        .layer(middleware::from_fn(completion::read));
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn semaphore() -> Result<Arc<dyn Semaphore>, Box<dyn Error>> {
    #[cfg(feature = "redis")]
    if let Ok(url) = env::var("REDIS_URL") {
        return Ok(Arc::new(
            tower_semaphore::RedisSemaphore::connect(url).await?,
        ));
    }
    Ok(Arc::new(MemorySemaphore::new()))
}
