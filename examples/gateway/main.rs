//! A gateway in front of a streaming completion API: limits per API key, per model and for all
//! together, in tokens, decided at once.
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
//! With `REDIS_URL` set, all gateways share the limits. Read on in `limits.rs` for the claims of a
//! request and for its refusal, in `completion.rs` for the request and the stream, and in
//! `upstream.rs` for the fake model.

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
        // Outside of the limits, because the claims depend on the request's body.
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
