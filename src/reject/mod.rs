//! Turns the reason why a request is not admitted into a response.

mod body;
mod drain;
pub(crate) mod grpc;
mod problem;
mod reason;
mod rejection;

pub(crate) use body::RejectionBody;
pub(crate) use drain::Drain;
pub use reason::Reason;
pub(crate) use reason::{RequestLimit, RequestLimits};
pub use rejection::Rejection;
pub(crate) use rejection::{Reject, default_rejection, is_rejection, reject, respond};
