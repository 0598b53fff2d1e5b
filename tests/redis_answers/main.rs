//! Every claim gets its answer in time, and no answer leaves anything behind in Redis.
//!
//! A proxy stands between the store and the server. It delays and cuts; what is held is read past
//! it, from the server itself.

#![cfg(feature = "redis")]

mod budget;
mod deadlines;
mod full;
mod gateway;
mod goodput;
mod load;
mod overload;
mod resent;
mod stalled;
mod weight;
