use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore};

fn main() {
    drop(ConcurrencyLimitLayer::new(5, |parts| parts.uri.path().to_owned(), MemorySemaphore::new()));
}
