//! Claims and permits while Redis is unavailable, and after it has returned.

#![cfg(feature = "redis")]

mod breaker;
mod budgets;
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
