//! What becomes of claims and permits while Redis is unavailable, and when it is back.

#![cfg(feature = "redis")]

mod breaker;
mod ends;
mod fleet;
mod healed;
mod held;
mod mute;
mod over_http;
mod server;
mod settling;
mod share;
mod unavailable;
