//! The state machine and the scripts of [tower-semaphore]'s store in Redis.
//!
//! This crate decides what is sent to servers and what callers learn. It has no I/O, runtime, lock, clock or
//! randomness, so a simulation runs it through a million faults in seconds. Its API follows the needs of
//! tower-semaphore, which services use instead, and may change with each release.
//!
//! | module | content |
//! |---|---|
//! | [`core`] | the claims and permits of a process, and the calls that it makes for them |
//! | [`verbs`] | the scripts, the commands that run them, and their answers |
//! | [`question`] | the way of a command that belongs to no lease: where it is sent, and when again |
//!
//! [tower-semaphore]: https://docs.rs/tower-semaphore

#![allow(
    missing_docs,
    reason = "names document most fields, and no service uses this crate directly"
)]

pub mod core;
pub mod question;
pub mod verbs;
