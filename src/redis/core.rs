//! What the store, its permits and the keeper share.

use super::{lease::Times, script::Scripts};

/// The way to the server, and the lengths of time.
pub(super) struct Core {
    pub(super) scripts: Scripts,
    pub(super) times: Times,
}
