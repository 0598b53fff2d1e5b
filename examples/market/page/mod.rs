//! The page at `/`: an account's permits live, who waits for them, and the market's trades.
//!
//! Nothing here takes a permit of the account, and nothing runs for an account that nobody watches.

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
