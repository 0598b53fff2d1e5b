//! From the reason why a request is not admitted to a response.

mod body;
pub(crate) mod grpc;
mod problem;
mod reason;
mod rejection;

pub(crate) use body::RejectionBody;
pub use reason::Reason;
pub(crate) use reason::{Limit, Limits};
pub use rejection::Rejection;
pub(crate) use rejection::{Reject, default_rejection, reject};
