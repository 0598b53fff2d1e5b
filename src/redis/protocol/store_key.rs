//! Calls for a key of the store itself, beside those of its semaphores.

use super::{
    call::{Call, Protocol},
    id::Owner,
    reply::Reply,
    script::Text,
    share::{Numbers, Share},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{borrow::Cow, iter};

/// A key, of which the script knows the end of the name.
pub(super) struct StoreKey<'a> {
    /// What its name begins with: the prefix of all keys, which takes the part of a semaphore's name.
    pub(super) prefix: &'a str,
    pub(super) end: &'static str,
    /// Whether the script has to know the process.
    pub(super) names_process: bool,
}

impl Share for StoreKey<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.prefix)
    }

    fn key(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{}{}", self.prefix, self.end))
    }

    fn args(&self) -> usize {
        usize::from(self.names_process)
    }

    fn units(&self) -> usize {
        0
    }

    fn write(&self, owner: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        if self.names_process {
            let Owner {
                process, lease_ms, ..
            } = owner;
            command.arg(Text(format_args!("{process}:{lease_ms}")));
        }
    }

    fn items(&self, _: Option<&Value>) -> usize {
        1
    }
}

impl Protocol {
    /// Runs a script for the key. Returns the number behind the server's time.
    pub(super) async fn run_for(&self, call: &Call<'_>, key: StoreKey<'_>) -> Result<i64, Error> {
        let replies = self.run(call, &[key]).await;
        match replies.into_iter().next().transpose()? {
            Some(Reply::Items(_, items)) => match items[..] {
                [Value::Int(number)] => Ok(number),
                _ => Err(Error::Reply),
            },
            _ => Err(Error::Reply),
        }
    }
}
