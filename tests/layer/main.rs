//! The layer over plain services: which requests are admitted, which are refused, and what the
//! responses say.

mod api;
mod claims;
mod fields;
#[path = "../support/http.rs"]
mod http_requests;
mod inner;
mod keys;
mod limit;
mod nested;
mod permit;
mod refusal;
mod rig;
mod stack;
#[allow(dead_code, reason = "the tests of the other layer use the rest")]
mod stores;
mod waiting;
