use http::Request;
use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
use tower::{Layer, Service};
use tower_semaphore::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, key};

/// Like `reqwest::Client`.
#[derive(Clone)]
struct Client;

struct OwnRequest;
struct OwnResponse;

impl Service<OwnRequest> for Client {
    type Response = OwnResponse;
    type Error = Infallible;
    type Future = Ready<Result<OwnResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: OwnRequest) -> Self::Future {
        ready(Ok(OwnResponse))
    }
}

fn send(_: impl Service<Request<String>>) {}

fn main() {
    let store = MemorySemaphore::new();
    send(ConcurrencyLimitLayer::new(5, key::fixed("all"), store.clone()).layer(Client));
    send(GlobalConcurrencyLimitLayer::new(5, "all", store).layer(Client));
}
