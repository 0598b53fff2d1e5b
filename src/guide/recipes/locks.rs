//! Locks with fencing tokens.
//!
//! A [`Lock`](crate::Lock) is a semaphore of one. Normally one holder at a time has it. A holder that is paused for
//! longer than its lease, for instance by a suspended machine, does not know that another holder has the lock now. The
//! same is true of a holder whose write is still on its way. No lock over a network can rule that out. The *resource*
//! can: it remembers the highest token that it has seen, and refuses a lower one.
//!
//! ```
//! use std::time::Duration;
//! use tower_semaphore::{Lock, MemorySemaphore};
//!
//! /// What the lock protects: a row, a file, an object in a store.
//! #[derive(Default)]
//! struct Balance {
//!     coins: u64,
//!     token: u64,
//! }
//!
//! impl Balance {
//!     fn write(&mut self, coins: u64, token: u64) -> Result<(), &'static str> {
//!         if token < self.token {
//!             return Err("a later holder has written already");
//!         }
//!         (self.coins, self.token) = (coins, token);
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let lock = Lock::new(MemorySemaphore::new(), "account-42");
//! let mut balance = Balance::default();
//!
//! let first = lock.acquire(Duration::from_secs(1)).await.unwrap();
//! let old = first.token();
//! drop(first); // as if its lease had ended
//!
//! let second = lock.acquire(Duration::from_secs(1)).await.unwrap();
//! assert_eq!(balance.write(100, second.token()), Ok(()));
//! assert!(balance.write(5, old).is_err(), "the late write of the first holder");
//! # }
//! ```
//!
//! In SQL the resource is a column, and one statement compares and writes:
//!
//! ```text
//! UPDATE accounts SET coins = $1, token = $2 WHERE id = 42 AND token <= $2
//! ```
//!
//! No row updated means that a later holder was there. Compare with `<=`, so that one holder may write twice.
//!
//! # Further rules
//!
//! - In Redis tokens of a key strictly increase within one history of the data. After a loss of all data they go on
//!   above the old ones, because a new counter begins at the server's time. The sequence may have gaps.
//! - In memory tokens begin again with each process. A resource that outlives the process needs a lock in Redis.
//! - Listen to [`lost`](crate::LockGuard::lost) to stop early; it spares work, and is no replacement for the token.
//! - Locks are strict: while the store is unavailable none is granted, whatever the policy.
//! - A permit of any [claim](crate::Claim) has a token too ([`Permit::token`](crate::Permit::token)), but with a
//!   limit above 1 a lower token is not a sign of a lost lease.
//! - Several locks at once: claim them together, in one order everywhere, as [several claims](crate::Claims) with a
//!   limit of 1, strict; [`Permit::levels`](crate::Permit::levels) has the token of each.
