//! A transport that nothing is sent over, for tests.

use super::{
    connection::Replies,
    contract::{Terms, Transport},
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::Cmd;
use std::time::Instant;

pub(in crate::redis) struct Unused {
    pub(in crate::redis) one_server: bool,
}

impl Transport for Unused {
    fn ready(&self, _: &str, _: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        None
    }

    fn send(&self, _: Vec<Cmd>, _: Terms) -> BoxFuture<Result<Replies, Error>> {
        panic!("it is unused")
    }

    fn is_one_server(&self) -> bool {
        self.one_server
    }
}
