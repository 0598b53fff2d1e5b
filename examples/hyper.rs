//! The layer without a framework: hyper serves a tower stack.
//!
//! `curl -iN -H 'x-account-id: alice' http://127.0.0.1:3000/`

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use std::{convert::Infallible, env, error::Error, time::Duration};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tower::ServiceBuilder;
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
    let service = ServiceBuilder::new().layer(limit).service_fn(market);
    let port: u16 = env::var("PORT").as_deref().unwrap_or("3000").parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let socket = TokioIo::new(listener.accept().await?.0);
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(socket, service).await {
                eprintln!("a connection ended early: {error}");
            }
        });
    }
}

/// Five items, one per second.
async fn market(
    _: Request<Incoming>,
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let item = |n| Ok(Frame::data(Bytes::from(format!("item {n}\n"))));
    let items = tokio_stream::iter(1..=5).map(item);
    let body = StreamBody::new(items.throttle(Duration::from_secs(1)));
    Ok(Response::new(body))
}
