//! The client of `prices.proto`.

use crate::messages::{Item, Price};
use http::uri::PathAndQuery;
use http_body::Body as HttpBody;
use prost::bytes::Bytes;
use std::error::Error;
use tonic::{
    Code, Request, Response, Status, Streaming,
    body::Body,
    client::{Grpc, GrpcService},
};
use tonic_prost::ProstCodec;

type BoxError = Box<dyn Error + Send + Sync>;

/// A client of the price service, over a channel and the layers around it.
#[derive(Debug, Clone)]
pub struct PricesClient<T>(Grpc<T>);

impl<T> PricesClient<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<BoxError> + Send,
{
    /// Creates a client over this channel.
    pub fn new(channel: T) -> Self {
        Self(Grpc::new(channel))
    }

    /// Returns the current price of an item.
    ///
    /// # Errors
    ///
    /// Returns the status of a failed call.
    pub async fn now(&mut self, request: Request<Item>) -> Result<Price, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/market.Prices/Now");
        let answer = self.0.unary(request, path, ProstCodec::default()).await;
        answer.map(Response::into_inner)
    }

    /// Streams the price of an item whenever it changes.
    ///
    /// # Errors
    ///
    /// Returns the status of a failed call.
    pub async fn follow(&mut self, request: Request<Item>) -> Result<Streaming<Price>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/market.Prices/Follow");
        let codec = ProstCodec::default();
        let answer = self.0.server_streaming(request, path, codec).await;
        answer.map(Response::into_inner)
    }

    /// Waits for the layers around the channel, where a limit may hold the call back.
    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::new(Code::Unknown, error.into().to_string()))
    }
}
