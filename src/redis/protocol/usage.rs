//! usage: lists what is held, and what waits. See `usage.lua`.

#[cfg(tower_semaphore_core)]
use super::script::run;
use super::{reply::millis, script::Script};
use crate::redis::error::Error;
use redis::{Cmd, Value, from_redis_value};
use std::sync::LazyLock;
#[cfg(not(tower_semaphore_core))]
use {
    super::{
        call::{Call, Protocol},
        id::Owner,
        reply::Reply,
        share::{Numbers, Share},
    },
    std::{iter, time::Instant},
};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("usage.lua"));
    Script::new("usage", source, &[":held", ":queue", ":alive"])
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

#[cfg(not(tower_semaphore_core))]
/// The semaphore of which this is asked.
struct Asked<'a>(&'a str);

#[cfg(not(tower_semaphore_core))]
impl Share for Asked<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.0)
    }

    fn args(&self) -> usize {
        0
    }

    fn units(&self) -> usize {
        1
    }

    fn write(&self, _: &Owner, _: &Numbers<'_>, _: &mut Cmd) {}

    fn items(&self, _: Option<&Value>) -> usize {
        2
    }
}

#[cfg(not(tower_semaphore_core))]
impl Protocol {
    /// Lists what is held of a semaphore, and what waits for it.
    pub(in crate::redis) async fn usage(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Listed, Error> {
        let call = Call {
            script: &SCRIPT,
            head: &[],
            deadline,
            is_confirmed: false,
        };
        let reply = self.run(&call, &[Asked(name)]).await.pop();
        let Reply::Items(now, items) = reply.ok_or(Error::Reply)?? else {
            return Err(Error::Reply);
        };
        let mut lists = items.into_iter().map(read);
        let mut next = || lists.next().ok_or(Error::Reply)?;
        let (held, waiting) = (next()?, next()?);
        Ok(Listed { now, held, waiting })
    }
}

#[cfg(tower_semaphore_core)]
/// Asks what is held of a semaphore, and what waits for it.
pub(in crate::redis) fn usage(name: &str) -> Cmd {
    run(&SCRIPT, name, &[&0])
}

#[cfg(tower_semaphore_core)]
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
