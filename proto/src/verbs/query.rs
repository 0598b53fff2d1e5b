//! Operators' script runs, encoded as KEYS and ARGV.

use super::{
    command::Sink,
    id::{Digits, Owner, UnitId, encoded},
    usage::Cursors,
    verb::Verb,
};
use std::time::Duration;

/// One script run that an operator has requested.
#[derive(Debug, Clone, Copy)]
pub enum Query<'a> {
    /// Lists one page of a semaphore's permits, waiters and pause.
    Usage {
        name: &'a str,
        from: &'a Cursors,
    },
    Revoke(RevokeQuery<'a>),
    /// Pauses a semaphore, or ends its pause.
    Pause {
        name: &'a str,
        /// The first token of a semaphore that has none yet, in microseconds.
        floor: u64,
        /// The length and the operator's note. `None` ends the pause.
        pause: Option<(Duration, &'a str)>,
    },
    /// Sets or removes the limit of a semaphore, or of a policy.
    SetLimit {
        /// `POLICY:KEY` or `POLICY`, encoded as in the names of semaphores.
        of: &'a str,
        limit: Option<u32>,
        note: &'a str,
    },
    /// Reads the limits that operators have set.
    Limits,
    /// Reads the description that a process has stored.
    Process(&'a str),
}

/// The approximate number of members of each key on one page of usage. A server lists them in one or two milliseconds.
const PAGE: usize = 1_000;

/// The most limits that can be set. Each process reads all of them after a change, in one call of at most 5 ms.
const MOST_LIMITS: usize = 5_000;

/// The flow in the id of a pause. No claim can have it.
pub(super) const PAUSE_FLOW: &str = "!";

impl Query<'_> {
    pub fn verb(&self) -> Verb {
        match self {
            Self::Usage { .. } => Verb::Usage,
            Self::Revoke(_) => Verb::Revoke,
            Self::Pause { .. } => Verb::Pause,
            Self::SetLimit { .. } => Verb::Limits,
            Self::Limits | Self::Process(_) => Verb::Presence,
        }
    }

    /// The prefix of the query's keys, or its only key.
    pub fn name(&self, owner: &Owner) -> String {
        match self {
            Self::Usage { name, .. } | Self::Pause { name, .. } => (*name).to_owned(),
            Self::Revoke(revocation) => revocation.name.to_owned(),
            Self::SetLimit { .. } | Self::Limits => owner.limits_key(),
            Self::Process(id) => owner.key(&format!("process:{id}")),
        }
    }

    /// Writes the query as its script takes it.
    pub fn encode(&self, owner: &Owner, sink: &mut impl Sink) {
        let (verb, name) = (self.verb(), self.name(owner));
        // No query has more than 8 arguments.
        sink.begin(verb, verb.keys().len(), 8);
        verb.add_keys(&name, sink);
        match self {
            Self::Usage { from, .. } => {
                sink.add(PAGE);
                sink.add(from.0.len());
                from.0.iter().for_each(|cursor| sink.add(cursor));
            }
            Self::Revoke(revocation) => {
                sink.add(revocation.floor);
                sink.add(revocation.remember_ms);
                sink.add(1);
                sink.add(revocation.id);
            }
            Self::Pause { floor, pause, .. } => {
                let (time, note) = pause.unwrap_or_default();
                let (millis, process) = (time.as_millis() as u64, &owner.process);
                sink.add(floor);
                sink.add(millis);
                // The id of the entry in two parts. The script puts the server's time between them.
                sink.add(2);
                sink.add(format_args!(
                    "{process}.0.0.0.0.1.{}.",
                    Digits::<36>(millis)
                ));
                sink.add(format_args!(".1.{PAUSE_FLOW}.{}", encoded(note.as_bytes())));
            }
            Self::SetLimit { of, limit, note } => {
                sink.add(of);
                sink.add(limit.map_or(-1, i64::from));
                sink.add(encoded(note.as_bytes()));
                sink.add(MOST_LIMITS);
            }
            Self::Limits => read_part("limits", owner, sink),
            Self::Process(_) => read_part("process", owner, sink),
        }
    }
}

/// Writes the arguments of a presence call that reads one part.
fn read_part(part: &str, owner: &Owner, sink: &mut impl Sink) {
    sink.add(owner.lease_ms);
    sink.add(2);
    sink.add(part);
    sink.add("");
}

/// The shortest time for which a revocation is stored. A holder that reconnects within it does not get the permit back.
const REMEMBERED_MS: u64 = 60 * 60 * 1_000;

/// The same in leases of the permit. The longer of the two times counts.
const REMEMBERED_LEASES: u64 = 8;

/// Caps the lease that an id names, because the id is an operator's input.
const LONGEST_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

/// The revocation of a permit.
#[derive(Debug, Clone, Copy)]
pub struct RevokeQuery<'a> {
    name: &'a str,
    id: &'a str,
    floor: u64,
    remember_ms: u64,
}

impl<'a> RevokeQuery<'a> {
    /// `name` is the prefix of the semaphore's keys, `floor` the first token of a semaphore that has none yet, in
    /// microseconds. Returns `None` if `id` is no permit's id, or names more units than `max_weight`.
    pub fn new(name: &'a str, id: &'a str, floor: u64, max_weight: u32) -> Option<Self> {
        let is_permit = |id: &UnitId<'_>| id.unit == 1 && id.lease.weight <= max_weight;
        let read = UnitId::read(id).filter(is_permit)?;
        let leases_ms = REMEMBERED_LEASES * read.lease_ms.min(LONGEST_LEASE_MS);
        Some(Self {
            name,
            id,
            floor,
            remember_ms: REMEMBERED_MS.max(leases_ms),
        })
    }
}
