//! Tests the page of the example `market` in a real browser: Debian's `chromium` and `chromium-driver`.
//!
//! `cargo test -p tower-semaphore-browser` runs the tests and makes the pictures.

#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "no user of the library sees this crate"
)]

pub mod browser;
mod devtools;
mod driver;
pub mod market;
