//! The server of `prices.proto`.

use crate::messages::{Item, Price};
use futures_util::{future::BoxFuture, stream::BoxStream};
use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// A future answer.
pub type Answer<T> = BoxFuture<'static, Result<Response<T>, Status>>;

/// Price changes as they happen.
pub type PriceStream = BoxStream<'static, Result<Price, Status>>;

/// The methods of a price service.
pub trait Prices: Send + Sync + 'static {
    /// Returns the current price of an item.
    fn now(&self, request: Request<Item>) -> Answer<Price>;

    /// Streams the price of an item whenever it changes.
    fn follow(&self, request: Request<Item>) -> Answer<PriceStream>;
}

/// The price service over gRPC.
#[derive(Debug)]
pub struct PricesServer<P>(Arc<P>);

impl<P> PricesServer<P> {
    /// Creates a service that answers with these prices.
    pub fn new(prices: P) -> Self {
        Self(Arc::new(prices))
    }
}

impl<P> Clone for PricesServer<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> NamedService for PricesServer<P> {
    const NAME: &'static str = "market.Prices";
}

impl<P: Prices> Service<http::Request<Body>> for PricesServer<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let prices = Arc::clone(&self.0);
        Box::pin(async move { Ok(answer(&*prices, request).await) })
    }
}

async fn answer<P: Prices>(prices: &P, request: http::Request<Body>) -> http::Response<Body> {
    let mut grpc = Grpc::new(ProstCodec::<Price, Item>::default());
    match request.uri().path() {
        "/market.Prices/Now" => {
            let now = service_fn(|request| prices.now(request));
            grpc.unary(now, request).await
        }
        "/market.Prices/Follow" => {
            let follow = service_fn(|request| prices.follow(request));
            grpc.server_streaming(follow, request).await
        }
        _ => Status::unimplemented("there is no such method").into_http(),
    }
}
