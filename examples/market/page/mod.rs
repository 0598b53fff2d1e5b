//! The page at `/`: an account's permits, their waiters, and the market's trades, all live.
//!
//! The page itself takes no permit of the account, and no task runs for an account without watchers.

mod about;
mod document;
mod elsewhere;
mod feed;
mod look;
mod refusals;
mod watchers;

pub(crate) use self::{
    about::About, document::page, elsewhere::from_this_machine, feed::feed, refusals::told,
    watchers::Watchers,
};
