//! Moving from another limit.
//!
//! | from | what changes most |
//! |---|---|
//! | [`tower`] | a limit for each key, to the end of the body, over all processes |
//! | [`governor`] | requests *in flight* instead of requests *per second* |
//! | [`nginx`] | one limit for all machines, a queue, and the application's accounts as keys |
//! | [`redis_semaphore`] | fair order, the server's clock, and no polling |
//!
//! Try the new limit [in shadow](super::operate#try-a-limit-before-it-bites) beside the old one before you take the
//! old one away.

pub mod governor;
pub mod nginx;
pub mod redis_semaphore;
pub mod tower;
