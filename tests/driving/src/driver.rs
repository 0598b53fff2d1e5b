//! The driver's files, except for the file that needs a Redis client.

#[path = "../../../src/redis/driver/carry.rs"]
mod carry;
#[path = "../../../src/redis/driver/cell.rs"]
mod cell;
#[path = "../../../src/redis/driver/claim.rs"]
mod claim;
#[path = "../../../src/redis/driver/end.rs"]
mod end;
#[path = "../../../src/redis/driver/keeper.rs"]
mod keeper;
#[path = "../../../src/redis/driver/runtimes.rs"]
mod runtimes;
#[path = "../../../src/redis/driver/shared.rs"]
mod shared;
#[path = "../../../src/redis/driver/transport.rs"]
mod transport;

pub(in crate::redis) use cell::ClaimRefusal;
pub(in crate::redis) use claim::{Driver, HeldPermit};
pub(in crate::redis) use keeper::boot_time;
pub(in crate::redis) use shared::StoreHealth;
pub(in crate::redis) use transport::{Messages, News, ServerConnection, Transport};
