use http::{Request, Response};
use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
use tower::{Layer, Service};
use tower_semaphore::{ConcurrencyLimitLayer, LimitLayer, MemorySemaphore, key};

struct Handler;

impl Service<Request<String>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

fn main() {
    let store = MemorySemaphore::new();
    drop(ConcurrencyLimitLayer::new(5, key::fixed("all"), store.clone()).layer(Handler));
    drop(LimitLayer::new(5, |_: &Request<String>| "all", store).layer(Handler));
}
