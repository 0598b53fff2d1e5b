//! Requests of an account.

use http::Request;
use tower_semaphore::{ConcurrencyLimitLayer, Semaphore, key};

/// The header that names the account in these tests.
pub const ACCOUNT: &str = "x-account-id";

/// A request of `account`, without a body.
pub fn request<B: Default>(account: &str) -> Request<B> {
    Request::get("/")
        .header(ACCOUNT, account)
        .body(B::default())
        .expect("an account that fits into a header")
}

/// Limits requests in flight per account, counted by `semaphore`.
pub fn limit(limit: u32, semaphore: impl Semaphore) -> ConcurrencyLimitLayer<key::Header> {
    ConcurrencyLimitLayer::new(limit, key::header(ACCOUNT), semaphore)
}
