//! What a call says of one semaphore, and how that is brought together.

use super::call::ARGS;
use crate::redis::lease::Lease;
use redis::{Cmd, RedisWrite, ToRedisArgs};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// What the ids of this process's permits have in common.
pub(super) struct Ids {
    pub(super) process: Arc<str>,
    pub(super) lease_ms: u64,
}

/// One semaphore's share of a call, and of its answer.
pub(super) trait Part {
    fn name(&self) -> &str;

    /// How many arguments it has.
    fn args(&self) -> usize;

    fn write(&self, ids: &Ids, command: &mut Cmd);

    /// How many items of a detailed answer are its own.
    fn items(&self) -> usize;
}

/// How a claim waits, told with each acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Place {
    /// How long its owner counts as alive without a further word.
    pub(in crate::redis) alive: Duration,
    /// How many may wait.
    pub(in crate::redis) longest: u32,
    /// The ticket that it was given before; 0 for none.
    pub(in crate::redis) ticket: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alive = self.alive.as_millis();
        write!(f, "{alive} {} {}", self.longest, self.ticket)
    }
}

/// Claims of one semaphore that are asked in one call, and how they wait.
pub(in crate::redis) struct Claims {
    pub(in crate::redis) name: Arc<str>,
    pub(in crate::redis) leases: Vec<(Arc<Lease>, Option<Place>)>,
}

impl Claims {
    /// A claim that is asked alone.
    pub(in crate::redis) fn one(lease: &Arc<Lease>, place: Option<Place>) -> Self {
        Self {
            name: lease.name(),
            leases: vec![(Arc::clone(lease), place)],
        }
    }
}

impl Part for Claims {
    fn name(&self) -> &str {
        &self.name
    }

    fn args(&self) -> usize {
        3 * self.leases.len()
    }

    fn write(&self, ids: &Ids, command: &mut Cmd) {
        for (lease, place) in &self.leases {
            let usual = lease.units.weight == 1;
            command
                .arg(Text(lease.id(&ids.process, ids.lease_ms)))
                .arg(if usual { lease.units.limit } else { 0 });
            match place {
                Some(place) => command.arg(Text(place)),
                None => command.arg(""),
            };
        }
    }

    fn items(&self) -> usize {
        2 * self.leases.len()
    }
}

/// Permits of one semaphore that are refreshed or released in one call.
pub(in crate::redis) struct Group {
    pub(in crate::redis) name: Arc<str>,
    pub(in crate::redis) leases: Vec<Arc<Lease>>,
}

impl Part for Group {
    fn name(&self) -> &str {
        &self.name
    }

    fn args(&self) -> usize {
        let weights = self.leases.iter().map(|lease| lease.units.weight as usize);
        weights.sum()
    }

    fn write(&self, ids: &Ids, command: &mut Cmd) {
        for lease in &self.leases {
            for member in lease.members(&ids.process, ids.lease_ms) {
                command.arg(Text(member));
            }
        }
    }

    fn items(&self) -> usize {
        self.args()
    }
}

/// Brings together what is of one semaphore, in the order in which it came.
pub(in crate::redis) fn by_name<T>(
    items: Vec<T>,
    name: impl Fn(&T) -> Arc<str>,
) -> HashMap<Arc<str>, Vec<T>> {
    let mut by_name: HashMap<_, Vec<T>> = HashMap::new();
    for item in items {
        by_name.entry(name(&item)).or_default().push(item);
    }
    by_name
}

/// Cuts a list into pieces of about [`ARGS`] units.
pub(in crate::redis) fn chunks<T>(items: Vec<T>, weight: impl Fn(&T) -> u32) -> Vec<Vec<T>> {
    let mut chunks = vec![Vec::new()];
    let mut units = 0;
    for item in items {
        if units >= ARGS as u32 {
            chunks.push(Vec::new());
            units = 0;
        }
        units += weight(&item);
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(item);
        }
    }
    chunks
}

/// An argument written by its `Display`, without a string in between.
pub(super) struct Text<T>(pub(super) T);

impl<T: fmt::Display> ToRedisArgs for Text<T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}
