//! Units of permits, and their names in the server.

use crate::time::LEASE;
use std::fmt;

/// A permit: its process, and its serial there.
pub type Permit = (u8, u8);

/// A permit that has got another id has this much more as its serial.
const GENERATION: u64 = 1 << 48;

/// A unit of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The process: the client, or the one to whose first permit the unit was added.
    pub process: u8,
    /// The client, which has one claim at a time.
    pub client: u8,
    /// The level of the claim, from the narrowest.
    pub level: u8,
    /// How many units may be held together.
    pub limit: u8,
    /// How many units the permit has.
    pub weight: u8,
    /// The letter of the claim's flow; 0: it has none.
    pub flow: u8,
    /// The share of its flow.
    pub share: u8,
    /// The number of the unit, from 1.
    pub number: u8,
}

impl Unit {
    /// The first unit, whose name is the permit's id.
    pub fn id(self) -> Self {
        Self { number: 1, ..self }
    }

    /// All units of the permit.
    pub fn all(self) -> impl Iterator<Item = Self> {
        (1..=self.weight).map(move |number| Self { number, ..self })
    }

    /// What its permit costs its flow.
    pub fn cost(self) -> i64 {
        let (turns, share) = (100_000 * i64::from(self.weight), i64::from(self.share));
        (turns + share - 1) / share
    }

    /// Reads a unit's name.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, number) = match text.split_once(':') {
            Some((id, number)) => (id, number.parse().ok()?),
            None => (text, 1),
        };
        let (share, flow) = match id.split_once("~_") {
            Some((_, flow)) => {
                let (share, flow) = flow.split_once('_')?;
                (share.parse().ok()?, *flow.as_bytes().first()?)
            }
            None => (1, 0),
        };
        let mut parts = id.split('.');
        let mut next = || parts.next();
        let (process, serial) = (next()?, next()?);
        let (client, level) = Self::owner(process, serial)?;
        let (limit, weight) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let unit = Self {
            process: process.strip_prefix('p')?.parse().ok()?,
            client,
            level,
            limit,
            weight,
            flow,
            share,
            number,
        };
        (unit.to_string() == text).then_some(unit)
    }

    /// The client and the level of a process's permit with this serial.
    pub fn owner(process: &str, serial: &str) -> Option<(u8, u8)> {
        let process = process.strip_prefix('p')?.parse().ok()?;
        let serial = u64::from_str_radix(serial, 16).ok()? % GENERATION;
        let serial = u8::try_from(serial).ok()?;
        let client = match serial / 16 {
            0 => process,
            added => added - 1,
        };
        Some((client, (serial % 16).checked_sub(1)?))
    }

    /// Reads `PROCESS.SERIAL`, with the serial that a permit keeps whatever its id is.
    pub fn permit_of(text: &str) -> Option<Permit> {
        let (process, serial) = text.split_once('.')?;
        let process = process.strip_prefix('p')?.parse().ok()?;
        let number = u8::from_str_radix(serial, 16).ok()?;
        (format!("{number:x}") == serial).then_some((process, number))
    }

    /// The permit.
    pub fn permit(self) -> Permit {
        let added = match self.is_added() {
            true => 16 * (self.client + 1),
            false => 0,
        };
        (self.process, added + self.level + 1)
    }

    /// Whether the unit was added to another permit.
    pub fn is_added(self) -> bool {
        self.process != self.client
    }

    /// Whether the unit was added to that permit, which has to be the first of its process.
    pub fn is_added_to(self, permit: Permit) -> bool {
        self.is_added() && permit == (self.process, 1)
    }
}

/// Clients with odd numbers have ids as long as they get.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, serial) = self.permit();
        let is_long = process % 2 == 1 && !self.is_added();
        let serial = u64::from(serial) + if is_long { GENERATION } else { 0 };
        let Self { limit, weight, .. } = self;
        write!(f, "p{process}.{serial:x}.{limit}.{weight}.{LEASE}.0")?;
        match (self.is_added(), is_long) {
            (true, _) => f.write_str(".+1")?,
            (false, true) => f.write_str(".a-_~2E")?,
            (false, false) if self.flow > 0 => f.write_str(".")?,
            (false, false) => {}
        }
        if self.flow > 0 {
            write!(f, "~_{}_{}", self.share, char::from(self.flow))?;
        }
        match self.number {
            1 => Ok(()),
            number => write!(f, ":{number}"),
        }
    }
}
