//! A limit for services of any request type, with refusals as errors.
//!
//! [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) answers a refused HTTP request with a response.
//! [`LimitLayer`] returns an error instead, as the layers of tower do. So it fits where no HTTP response can be made:
//! in a stack of tower, around a database or a queue, and around a client whose caller handles errors.
//!
//! ```
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_semaphore::{AcquireError, LimitLayer, MemorySemaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // Two queries at a time for each user. The user's name precedes the colon.
//! let by_user = |query: &String| query.split(':').next().unwrap_or_default().to_owned();
//! let mut database = ServiceBuilder::new()
//!     .layer(LimitLayer::new(2, by_user, MemorySemaphore::new()))
//!     .service(service_fn(async |query: String| Ok::<_, std::io::Error>(query.len())));
//!
//! let rows = database.call("ann: select".to_owned()).await.unwrap();
//! let others = database.call("ann: insert".to_owned()).await.unwrap();
//! let error = database.call("ann: delete".to_owned()).await.unwrap_err();
//! let refused = AcquireError::find_in(&*error).unwrap();
//! assert!(refused.is_refusal());
//!
//! // The permit ends with the response.
//! drop(rows);
//! assert!(database.ready().await.unwrap().call("ann: delete".to_owned()).await.is_ok());
//! # drop(others);
//! # }
//! ```
//!
//! # The end of a permit
//!
//! The limit can see the end of a response only by its type, so the layer needs a setting for it:
//!
//! - [`UntilDropped`], the default: a response comes as [`Held`], which dereferences to it, and keeps the permit until
//!   it is dropped.
//! - [`UntilBodyEnd`], after [`with_http_bodies`](LimitLayer::with_http_bodies): an `http::Response` keeps its type
//!   with the body [`ResponseBody`](crate::ResponseBody), which releases the permit at the body's end. Use it for
//!   tonic's generated clients and for other HTTP services.
//!
//! # With `buffer` and `load_shed`
//!
//! The service is always ready, because a key is known only from its request. So a `load_shed` around it never sheds,
//! and a `buffer` around it does not bound how many requests wait for permits:
//! [`with_max_waiting`](LimitLayer::with_max_waiting) does. Inside, around a service that may not be ready, both work
//! as usual.
//!
//! # Nested limits
//!
//! Two limits of one store, policy and key, one inside the other, are a mistake: a request counts twice, or waits for
//! its own permit. The layers for HTTP find it through the request's extensions, and answer 500. A request of any type
//! has no such place, so a [`LimitLayer`] does not find it. Use a separate policy for each of two nested limits, with
//! [`with_policy`](LimitLayer::with_policy).

mod future;
mod hold;
mod service;

pub use future::ResponseFuture;
pub use hold::{Held, Hold, UntilBodyEnd, UntilDropped};
pub use service::{Limit, LimitLayer};
