//! The layers around a server and a channel of tonic, and the example as processes.

mod aborted;
mod channel;
mod endings;
mod fixture;
mod process;
mod refusals;
mod uploads;
