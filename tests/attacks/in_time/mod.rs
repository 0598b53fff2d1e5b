//! Every claim gets its answer in time, and no answer leaves anything behind in Redis.
//!
//! A proxy stands between the store and the server. It delays and cuts; what is held is read past
//! it, from the server itself.

mod budget;
mod full;
mod gateway;
mod goodput;
mod load;
mod overload;
mod weight;
