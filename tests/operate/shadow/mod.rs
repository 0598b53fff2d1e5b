//! A limit in shadow admits every request, and counts the requests that it would have refused.

mod admitted;
mod beside;
mod predicted;
mod rig;
mod slots;
