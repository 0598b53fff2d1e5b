//! The failures of a Redis server: one classification, and the public errors.
//!
//! | file | content |
//! |---|---|
//! | `class` | the table that classifies the answers of servers and the errors of redis-rs |
//! | `face` | the errors that users see: a kind, a setting, a text with the remedy, and the cause |
//! | `origin` | the error of a class: the setting to change, and the remedy |

mod class;
mod face;
mod origin;

pub(super) use class::{Class, Failed, Unfit, io_error, known_words};
pub use face::{ConnectError, Error, Kind};
pub(super) use origin::Origin;
