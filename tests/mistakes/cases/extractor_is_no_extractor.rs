use http::request::Parts;
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore};

async fn account(parts: &Parts) -> String {
    parts.uri.path().to_owned()
}

fn main() {
    drop(ConcurrencyLimitLayer::new(5, "x-account-id", MemorySemaphore::new()));
    drop(ConcurrencyLimitLayer::new(5, account, MemorySemaphore::new()));
    drop(ConcurrencyLimitLayer::new(5, |_: &Parts| 1.5, MemorySemaphore::new()));
}
