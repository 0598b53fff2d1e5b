//! wip

mod admission;
mod body;
mod fields;
mod future;
pub mod global;
pub mod key;
mod layer;
pub mod lock;
mod memory;
#[cfg(feature = "redis")]
pub mod redis;
mod reject;
pub mod semaphore;
mod service;
mod settings;

pub use body::{PermitLost, ResponseBody};
pub use future::ResponseFuture;
pub use global::{GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer};
pub use key::{KeyError, KeyExtractor};
pub use layer::ConcurrencyLimitLayer;
pub use lock::{Lock, LockGuard};
pub use memory::MemorySemaphore;
#[cfg(feature = "redis")]
pub use redis::RedisSemaphore;
pub use reject::{Reason, Rejection};
pub use semaphore::{Acquire, AcquireError, Claim, Key, Permit, Policy, Semaphore};
pub use service::ConcurrencyLimit;
pub use settings::{OnLost, ReleaseAt};
