//! The HTTP half: the layers, what they answer, and how responses hold their permits.

mod axum;
mod body;
mod global;
mod layer;
mod limit_layer;
mod live;
#[cfg(feature = "redis")]
mod over_redis;
mod retry_after;
