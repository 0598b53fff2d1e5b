//! The HTTP half: the layers, their answers, and the permits that responses hold.

mod axum;
mod body;
mod global;
mod layer;
mod limit_layer;
mod live;
#[cfg(feature = "redis")]
mod over_redis;
mod retry_after;
