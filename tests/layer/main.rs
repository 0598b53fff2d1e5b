//! The layer over plain services: who is admitted, who is refused, and how they are told.

mod api;
mod claims;
mod fields;
mod hold;
#[path = "../support/http.rs"]
mod http_requests;
mod inner;
mod keys;
mod limit;
mod nested;
mod refusal;
mod rig;
mod stack;
#[allow(dead_code, reason = "the tests of the other layer use the rest")]
mod stores;
mod waiting;
