//! Recorders and subscribers that panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Counts or tells what a store does. A panic of a recorder or subscriber, which the panic hook has told, ends
/// here: the store has to go on with what it does for all permits, or for one that has lost its place.
pub(super) fn contain(tell: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(tell)));
}
