//! The driver of the store in Redis, which connects the core to its servers, over fake servers in real time.
//!
//! ```text
//! cargo test -p tower-semaphore-driving
//! cargo run --release -p tower-semaphore-driving --example pairs
//! ```

// The library's features for metrics and events do not exist here, so both are off.
#![allow(unexpected_cfgs)]

#[path = "../../../src/redis"]
#[allow(missing_docs)]
pub mod redis {
    #[allow(dead_code, unreachable_pub, unused_imports)]
    #[path = "../../tests/driving/src/driver.rs"]
    mod driver;
    #[cfg(test)]
    #[path = "../../tests/driving/src/facts.rs"]
    mod facts;
    #[allow(dead_code)]
    #[path = "../../tests/driving/src/fake.rs"]
    mod fake;
    #[path = "../../tests/driving/src/pairs.rs"]
    pub mod pairs;
}
#[path = "../../../src/observe"]
mod observe {
    mod boundary;
    mod outcome;
    pub(crate) use boundary::contain;
    pub(crate) use outcome::{Answered, LostBy};
}
#[path = "../../../src/semaphore"]
mod semaphore {
    #[allow(dead_code, unreachable_pub)]
    mod loss;
    #[allow(dead_code, unreachable_pub)]
    mod policy;
    pub(crate) use crate::timer;
    pub(crate) use {loss::Loss, policy::Policy};
}
mod sync;
#[path = "../../../src/timer.rs"]
mod timer;
