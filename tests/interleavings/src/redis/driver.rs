//! The driver's files, and the scenarios beside them, so that they can use the files' private parts.

#[path = "../../../../src/redis/driver/carry.rs"]
mod carry;
#[path = "../../../../src/redis/driver/cell.rs"]
mod cell;
#[path = "../../../../src/redis/driver/claim.rs"]
mod claim;
#[path = "../../../../src/redis/driver/keeper.rs"]
mod keeper;
#[path = "../../../../src/redis/driver/runtimes.rs"]
mod runtimes;
#[path = "../../../../src/redis/driver/shared.rs"]
mod shared;
#[path = "../../../../src/redis/driver/transport.rs"]
mod transport;

/// Replaces the driver's `end.rs`. Nothing waits here, because the scenario itself plays the driver's thread.
mod end {
    use super::{shared::Shared, transport::Transport};
    use std::time::Instant;

    pub(super) fn may_block() -> bool {
        false
    }

    impl<T: Transport> Shared<T> {
        pub(super) fn wait_until_drained(&self, _: Instant) {}
    }
}
#[path = "races.rs"]
mod races;
