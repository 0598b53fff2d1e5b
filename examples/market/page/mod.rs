//! The page at `/`: an account's permits, their waiters, and the market's trades, all live.
//!
//! The page itself takes no permit of the account, and no task runs for an account without watchers.

mod about;
mod document;
mod elsewhere;
mod feed;
mod refusals;
mod snapshot;
mod watchers;

pub(crate) use self::{
    about::About, document::page, elsewhere::allow_own_origins, feed::feed,
    refusals::notify_watchers, watchers::Watchers,
};
