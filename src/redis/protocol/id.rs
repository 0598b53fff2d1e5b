//! The ids under which a server knows permits.

use super::tag::Tag;
use std::{fmt, sync::Arc};

/// What a permit's number grows by when the permit gets another id. A process numbers fewer permits.
pub(super) const GENERATION: u64 = 1 << 48;

/// Identifies a permit within its process. Has all values that a grant of the permit needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct PermitId {
    /// The permit's number within the process.
    pub(in crate::redis) serial: u64,
    /// How many units of its semaphore may be held together.
    pub(in crate::redis) limit: u32,
    /// How many units it was claimed with. The id has this number for as long as the permit is held.
    pub(in crate::redis) weight: u32,
    /// The numbers of the units that it has now: fewer, once some were released.
    first: u32,
    last: u32,
    /// What operators see of it.
    tag: Option<Tag>,
}

impl PermitId {
    pub(in crate::redis) fn new(serial: u64, limit: u32, weight: u32) -> Self {
        Self {
            serial,
            limit,
            weight,
            first: 1,
            last: weight,
            tag: None,
        }
    }

    /// The same, with a tag for operators.
    pub(in crate::redis) fn tagged(self, tag: Tag) -> Self {
        let tag = Some(tag);
        Self { tag, ..self }
    }

    /// The serial of which a renewed id has this one.
    pub(in crate::redis) fn base(serial: u64) -> u64 {
        serial % GENERATION
    }

    /// How many units it has.
    pub(in crate::redis) fn units(&self) -> u32 {
        self.last + 1 - self.first
    }

    /// The first `keep` units, and the others.
    pub(in crate::redis) fn split(&self, keep: u32) -> (Self, Self) {
        let (mut kept, mut others) = (self.clone(), self.clone());
        (kept.last, others.first) = (self.first + keep - 1, self.first + keep);
        (kept, others)
    }

    /// Whether its permit had another id before.
    pub(in crate::redis) fn is_renewed(&self) -> bool {
        self.serial >= GENERATION
    }

    /// As many units, under an id that was not used before.
    pub(in crate::redis) fn renewed(&self) -> Self {
        let serial = self.serial.wrapping_add(GENERATION);
        let tag = self.tag.clone();
        Self {
            tag,
            ..Self::new(serial, self.limit, self.units())
        }
    }
}

/// Whose permits they are, and where: what all calls of a process have in common.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Owner {
    pub(in crate::redis) process: Arc<str>,
    pub(in crate::redis) lease_ms: u64,
    /// What the names of all keys begin with.
    pub(in crate::redis) prefix: String,
    /// What the process says of itself to operators; empty: nothing.
    pub(in crate::redis) about: String,
    /// A key in each part of all slots, where each part counts as a server.
    pub(in crate::redis) parts: Vec<String>,
}

impl Owner {
    /// The channel of messages to this process.
    pub(in crate::redis) fn channel(&self) -> String {
        format!("{}wake:{}", self.prefix, self.process)
    }

    /// The id of a permit, which is that of its first unit.
    pub(super) fn id<'a>(&'a self, permit: &'a PermitId) -> UnitId<'a> {
        let owner = self;
        UnitId {
            owner,
            permit,
            unit: 1,
        }
    }

    /// The ids of a permit's units.
    pub(super) fn units<'a>(&'a self, permit: &'a PermitId) -> impl Iterator<Item = UnitId<'a>> {
        (permit.first..=permit.last).map(move |unit| UnitId {
            unit,
            ..self.id(permit)
        })
    }
}

/// The id of one unit: `PROCESS.SERIAL.LIMIT.WEIGHT.LEASE`, then its [`Tag`], and for each unit after
/// the first `:UNIT` behind that. A script that another process calls can grant the permit from its id
/// alone.
pub(super) struct UnitId<'a> {
    owner: &'a Owner,
    permit: &'a PermitId,
    unit: u32,
}

impl fmt::Display for UnitId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner {
            process, lease_ms, ..
        } = self.owner;
        let PermitId {
            serial,
            limit,
            weight,
            ref tag,
            ..
        } = *self.permit;
        write!(f, "{process}.{serial:x}.{limit}.{weight}.{lease_ms}")?;
        if let Some(tag) = tag {
            tag.fmt(f)?;
        }
        match self.unit {
            1 => Ok(()),
            unit => write!(f, ":{unit}"),
        }
    }
}
