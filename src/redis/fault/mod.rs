//! The failures of a Redis server: one classification, and one public face.
//!
//! | file | content |
//! |---|---|
//! | `class` | the table that classifies the answers of servers and the errors of redis-rs |
//! | `face` | the errors that users see: a kind, a setting, a text with the remedy, and the cause |
//! | `origin` | the setting and the remedy of a class at a place |

mod class;
mod face;
mod origin;

pub(super) use class::{Class, Failed, Unfit, io_error, known};
pub use face::{ConnectError, Error, Kind};
pub(super) use origin::Origin;
