//! What becomes of claims and permits while Redis is unavailable, and when it is back.

#![cfg(feature = "redis")]

mod blips;
mod breaker;
mod clear;
mod fleet;
mod healed;
mod held;
mod hygiene;
mod leaving;
mod nodes;
mod over_http;
mod parts;
mod reconciled;
mod runtimes;
mod server;
mod share;
mod storm;
mod unavailable;
mod waiters;
mod wire;
