//! usage: lists what is held, and what waits. See `usage.lua`.

use super::script::run;
use super::{reply::millis, script::Script};
use crate::redis::error::Error;
use redis::{Cmd, Value, from_redis_value};
use std::sync::LazyLock;

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("usage.lua"));
    Script::new(source, &[":held", ":queue", ":alive"])
});

/// What a server has of a semaphore. Times are ms of its clock.
pub(in crate::redis) struct Listed {
    pub(in crate::redis) now: u64,
    /// The members of a permit's units, and their ends.
    pub(in crate::redis) held: Vec<Ending>,
    /// The ids of waiters in the order of the queue, and until when they count as alive.
    pub(in crate::redis) waiting: Vec<Ending>,
}

/// An id, and when it ends.
pub(in crate::redis) type Ending = (String, u64);

/// Asks what is held of a semaphore, and what waits for it.
pub(in crate::redis) fn usage(name: &str) -> Cmd {
    run(&SCRIPT, name, &[&0])
}

/// Reads the reply to that.
pub(in crate::redis) fn listed(reply: Value) -> Result<Listed, Error> {
    let (now, held, waiting) = from_redis_value(reply).map_err(|_| Error::Reply)?;
    Ok(Listed {
        now: millis(now)?,
        held: read(held)?,
        waiting: read(waiting)?,
    })
}

/// Reads members and their scores. What is no text is not an id of ours.
fn read(list: Value) -> Result<Vec<Ending>, Error> {
    let items: Vec<(Vec<u8>, f64)> = from_redis_value(list).map_err(|_| Error::Reply)?;
    let ending = |(id, ends): (Vec<u8>, f64)| {
        let id = String::from_utf8_lossy(&id).into_owned();
        // A time that is none would be of no use to anybody.
        (id, millis(ends as i64).unwrap_or_default())
    };
    Ok(items.into_iter().map(ending).collect())
}
