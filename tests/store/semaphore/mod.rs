//! The trait that all stores implement, and its types, over stores of the test's own.

mod claims;
mod debug;
mod ends;
mod errors;
mod grants;
mod paused;
