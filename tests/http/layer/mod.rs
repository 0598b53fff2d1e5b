//! The layer over plain services: which requests are admitted, which are refused, and what the
//! responses say.

mod aborted;
mod api;
mod budgets;
mod claims;
mod cooldown;
mod drain;
mod early;
mod fields;
mod first_of;
mod given_back;
mod grpc;
mod in_handler;
mod inner;
mod keys;
mod limit;
mod nested;
mod paused;
mod permit;
mod refusal;
mod request_body;
pub(crate) mod rig;
mod runtimes;
pub(crate) mod same;
mod several;
mod stack;
mod stall;
mod waiting;
pub(crate) mod wrappers;
