//! The layers around tonic's server and channel, and the example run as processes.

mod aborted;
mod channel;
mod endings;
mod fixture;
mod process;
mod refusals;
mod uploads;
