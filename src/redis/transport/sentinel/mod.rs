//! The primary that Sentinels name.
//!
//! Sentinels are queried for each connection, and once in a second whether there is another primary.
//! Most of them have to answer, because one that is cut off from the others names an old primary; the
//! latest failover counts, and if they disagree about that, what most of them say. A server that says that it is no primary is not used, so an old primary
//! that comes back gets no claim once it knows its role.
//!
//! While too few answer, the primary that they named last stays, unless it has been started again.

mod answer;
mod heard;
mod known;
mod sentinels;
mod server_info;

pub(in crate::redis) use answer::Unnamed;
pub(in crate::redis) use sentinels::Sentinels;
