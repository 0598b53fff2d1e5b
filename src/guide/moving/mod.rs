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
//!
//! # Beside others
//!
//! | | this crate | tower's `ConcurrencyLimit` | nginx `limit_conn` | redis-semaphore (npm) | DistributedLock.Redis (.NET) |
//! |---|---|---|---|---|---|
//! | a limit for each key | yes | – | yes | yes, in code | yes, in code |
//! | finds the key in the request | yes | – | yes | – | – |
//! | held until | the body's last frame | the response's head | the body's end | released in code | released in code |
//! | across processes | Redis, a cluster, Sentinels | – | – | Redis, several by Redlock | Redis |
//! | who holds what | listed for each key; a permit can be revoked | – | – | – | – |
//! | without room | 429, or a bounded queue | waits, unbounded | refused | waits, polls | waits, polls |
//! | order of waiting requests | first come, first served, in the fleet | in the process | – | any | any |
//! | several limits, all or none | yes, in one round trip; on a cluster one for each | – | yes | – | one after the other |
//! | priority, weight | both | – | – | weight: `MultiSemaphore` | – |
//! | whose clock decides | the server's | – | – | the client's | the server's |
//! | refreshed while held | one keeper for all permits | – | – | each by its own timer | each by its own task |
//! | a lost permit | reported at once; the response may be cut | – | – | a callback | signalled |
//! | fencing token | yes | – | – | – | – |
//! | when Redis fails | 503, admitted, or admitted up to each process's share | – | – | an error | an error |
//! | backpressure in `poll_ready` | for a fixed key | yes | – | – | – |
//!
//! `–` is no, or does not apply. BENCHMARKS.md measures redis-semaphore and nginx beside this crate, and begins with
//! the cases in which this crate loses. In the same run 50 contenders competed for 5 permits. This crate needed 110
//! commands and served 1 of 1,225 pairs of contenders in the wrong order; redis-semaphore needed 1,887 commands and
//! served 342 pairs in the wrong order.

pub mod governor;
pub mod nginx;
pub mod redis_semaphore;
pub mod tower;
