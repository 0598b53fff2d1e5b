//! clock: reads the server's time, and the highest time that any process has seen on the server. See
//! `clock.lua`.

use super::{
    call::{Call, Protocol},
    id::Owner,
    reply::{Reply, micros},
    script::Script,
    share::{Numbers, Share},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{borrow::Cow, iter, sync::LazyLock, time::Instant};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("clock.lua"));
    Script::new(source, &[KEY])
});

/// What the key's name ends with.
const KEY: &str = "clock";

/// The prefix of all keys, which takes the part of a semaphore's name.
struct Mark<'a>(&'a str);

impl Share for Mark<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.0)
    }

    fn place(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{}{KEY}", self.0))
    }

    fn args(&self) -> usize {
        0
    }

    fn units(&self) -> usize {
        0
    }

    fn write(&self, _: &Owner, _: &Numbers<'_>, _: &mut Cmd) {}

    fn items(&self) -> usize {
        1
    }
}

impl Protocol {
    /// The key that is read.
    pub(in crate::redis) fn clock_key(&self) -> String {
        format!("{}{KEY}", self.prefix)
    }

    /// Reads the server's time, and exchanges the highest time that this process has seen for the
    /// highest that any process has seen.
    pub(in crate::redis) async fn clock(&self, deadline: Instant) -> Result<(), Error> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms, self.clock.floor()],
            deadline,
            is_confirmed: false,
        };
        let replies = self.run(&call, &[Mark(&self.prefix)]).await;
        let Some(Reply::Items(_, items)) = replies.into_iter().next().transpose()? else {
            return Err(Error::Reply);
        };
        match items[..] {
            [Value::Int(highest)] => {
                self.clock.raise(micros(highest)?);
                Ok(())
            }
            _ => Err(Error::Reply),
        }
    }
}
