//! The trait that all stores implement, and its types, over stores that the tests implement.

mod claims;
mod debug;
mod ends;
mod errors;
mod grants;
mod paused;
