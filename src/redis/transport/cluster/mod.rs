//! A cluster: its nodes by number, and which slots each has.
//!
//! Each node has connections of its own, so a dead one harms its own keys only.

mod nodes;
mod slot;
mod survey;
mod view;

pub(in crate::redis) use nodes::Nodes;
pub(super) use slot::SLOTS;
pub(in crate::redis) use slot::slot_of;
