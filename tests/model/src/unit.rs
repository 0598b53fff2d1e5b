//! Units of permits, and their names in the server.

use crate::time::LEASE;
use std::fmt;

/// A permit: its process, and its number in that process.
pub type Permit = (u8, u8);

/// A unit of a permit at one level of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The process: the client itself, or the client to whose first permit the unit was added.
    pub process: u8,
    /// The client, which has one claim at a time.
    pub client: u8,
    /// The level of the claim; 0 is the narrowest.
    pub level: u8,
    /// The limit: how many units may be held at a time.
    pub limit: u8,
    /// How many units the permit has.
    pub weight: u8,
    /// The letter of the claim's flow; 0 if it has none.
    pub flow: u8,
    /// The share of the flow: how many turns it takes.
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

    /// How far the permit moves the finish of its flow in a fair queue: by `UNIT` in grant.lua for each unit, divided
    /// by the share.
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
        let parts: Vec<_> = id.split('.').collect();
        let [
            process,
            permit,
            lease,
            _,
            limit,
            weight,
            _,
            _,
            share,
            flow,
            _,
        ] = parts[..]
        else {
            return None;
        };
        let (client, level) = Self::owner(process, permit, lease)?;
        let unit = Self {
            process: process.strip_prefix('p')?.parse().ok()?,
            client,
            level,
            limit: digits(limit)?,
            weight: digits(weight)?,
            flow: flow.bytes().next().unwrap_or(0),
            share: if share.is_empty() { 1 } else { digits(share)? },
            number,
        };
        (unit.to_string() == text).then_some(unit)
    }

    /// The client and the level of a lease. A permit's own lease is 0, and the permit's number shows the level. A lease
    /// of added units is 16 × level + client + 1.
    pub fn owner(process: &str, permit: &str, lease: &str) -> Option<(u8, u8)> {
        let process = process.strip_prefix('p')?.parse().ok()?;
        match (digits(permit)?, digits(lease)?) {
            (permit, 0) => Some((process, permit.checked_sub(1)?)),
            (_, lease) => Some((lease % 16 - 1, lease / 16)),
        }
    }

    /// Reads `PROCESS.PERMIT`.
    pub fn permit_of(text: &str) -> Option<Permit> {
        let (process, permit) = text.split_once('.')?;
        let process = process.strip_prefix('p')?.parse().ok()?;
        Some((process, digits(permit)?))
    }

    /// The unit's permit. Added units belong to the first permit of their process.
    pub fn permit(self) -> Permit {
        let is_first = self.is_added() || self.level == 0;
        (self.process, if is_first { 1 } else { self.level + 1 })
    }

    /// Returns true if the unit was added to another client's permit.
    pub fn is_added(self) -> bool {
        self.process != self.client
    }
}

/// Reads a number in the base 36 of ids.
fn digits(text: &str) -> Option<u8> {
    u8::from_str_radix(text, 36).ok()
}

/// Writes the unit's name as `proto/src/verbs/id.rs` does. Clients with odd numbers have ids of the maximum length.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, permit) = self.permit();
        let is_long = process % 2 == 1 && !self.is_added();
        let lease = match self.is_added() {
            true => 16 * self.level + self.client + 1,
            false => 0,
        };
        let permit_and_lease = [permit, lease].map(|number| base36(number.into()));
        let terms = [self.limit.into(), self.weight.into(), LEASE as u32].map(base36);
        let generation = if is_long { "zzz" } else { "0" };
        let since = if is_long { "zzzzzzzz" } else { "0" };
        let (lease_name, terms) = (permit_and_lease.join("."), terms.join("."));
        write!(f, "p{process}.{lease_name}.{generation}.{terms}.{since}.")?;
        match self.flow {
            0 => f.write_str(".")?,
            flow => write!(f, "{}.{}", base36(self.share.into()), char::from(flow))?,
        }
        f.write_str(if is_long { ".a-_~2E" } else { "." })?;
        match self.number {
            1 => Ok(()),
            number => write!(f, ":{number}"),
        }
    }
}

/// Writes a number in the base 36 of ids.
pub fn base36(number: u32) -> String {
    let digit = char::from_digit(number % 36, 36).into_iter();
    let before = (number >= 36).then(|| base36(number / 36));
    before.unwrap_or_default().chars().chain(digit).collect()
}
