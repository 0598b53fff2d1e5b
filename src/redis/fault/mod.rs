//! What a Redis server can answer or fail with: one classification, and one face for users.
//!
//! | file | what it is |
//! |---|---|
//! | `class` | the table that classifies what servers answer and what redis-rs reports |
//! | `face` | the errors that users see: a kind, a setting, a text with the remedy, and the cause |
//! | `origin` | what a class means at a place: the setting and the remedy |

mod class;
mod face;
mod origin;

pub(super) use class::{Cause, Class, Failed, Unfit, io_error, known};
pub use face::{ConnectError, Error, Kind};
pub(super) use origin::Origin;
