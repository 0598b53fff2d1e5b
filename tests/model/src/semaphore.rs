//! The state of one semaphore in the server, with all times relative to now.

use crate::{
    stand_in::{Entry, Sorted, StandIn, Value},
    time::{NOW, NOW_MS},
    unit::{Permit, Unit},
};

/// A sorted set of units, and its key's time to live.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Units {
    /// Units and scores, lowest score first.
    pub items: Vec<(Unit, i64)>,
    /// In ms; 0 if the key is missing.
    pub ttl: i64,
}

impl Units {
    /// The score of a unit.
    pub fn get(&self, unit: Unit) -> Option<i64> {
        let found = self.items.iter().find(|(other, _)| *other == unit);
        found.map(|(_, score)| *score)
    }

    /// The units whose end has not passed.
    pub fn live(&self) -> impl Iterator<Item = (Unit, i64)> {
        self.items.iter().copied().filter(|(_, end)| *end > 0)
    }

    /// Returns true if the unit's end has not passed.
    pub fn has_live(&self, unit: Unit) -> bool {
        self.get(unit).is_some_and(|end| end > 0)
    }

    /// Moves the time to live and the scores closer by these distances.
    fn shift(&mut self, ttl: i64, score: i64) {
        if self.ttl > 0 {
            self.ttl = (self.ttl - ttl).max(0);
        }
        match self.ttl {
            0 => self.items.clear(),
            _ => self.items.iter_mut().for_each(|(_, old)| *old -= score),
        }
    }
}

/// A semaphore: `held`, `queue`, `alive` and `token`. Ends are in ms, arrivals and the token in
/// microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Semaphore {
    /// The ends of leases.
    pub held: Units,
    /// The arrivals of waiters.
    pub queue: Units,
    /// The times until which waiters count as alive.
    pub alive: Units,
    /// The last arrival, which `alive` stores if waiters had head starts. In a fair queue, the virtual time.
    pub last_arrival: Option<i64>,
    /// If the queue is fair, the finish tag of each flow by its letter. Letter 0, for claims without a flow, is always
    /// there.
    pub finishes: Vec<(u8, i64)>,
    /// The revoked permits in order, each with the time until which `alive` stores its revocation.
    pub revoked: Vec<(Permit, i64)>,
    /// The last token, and the time until its key expires.
    pub token: Option<(i64, i64)>,
}

const KEYS: [&str; 4] = [":held", ":queue", ":alive", ":token"];
// The members of `alive` besides waiters: the last arrival, and prefixes of revocations and of finish tags.
const MARK: &str = "arrival";
const REVOKED: &str = "revoked:";
const FLOW: &str = "flow:";

/// All scores of revocations are below this, and all scores of arrivals above.
const REVOKED_BELOW: i64 = 5_000_000_000_000_000;

/// The time to live of a key that never expires.
pub const FOREVER: i64 = i64::MAX / 2;

/// The keys of a semaphore.
pub fn keys(at: u8) -> [String; 4] {
    KEYS.map(|suffix| format!("s{{{at}}}{suffix}"))
}

impl Semaphore {
    /// The state after the clock has moved on by `ms`. Ends before `past` become `past`, because no leap of the clock
    /// brings them back.
    #[must_use]
    pub fn after(&self, ms: i64, past: i64) -> Self {
        let mut next = self.clone();
        next.held.shift(ms, ms);
        next.queue.shift(ms, ms * 1_000);
        next.alive.shift(ms, ms);
        let is_there = next.alive.ttl > 0;
        next.last_arrival = self.last_arrival.map(|at| at - ms * 1_000);
        next.last_arrival = next.last_arrival.filter(|_| is_there);
        next.revoked.retain(|_| is_there);
        next.finishes.retain(|_| is_there);
        for (_, finish) in &mut next.finishes {
            *finish -= ms * 1_000;
        }
        for (_, until) in &mut next.revoked {
            *until = (*until - ms).max(past);
        }
        let token = self
            .token
            .map(|(token, ttl)| (token - ms * 1_000, ttl - ms));
        next.token = token.filter(|(_, ttl)| *ttl > 0);
        for ends in [&mut next.held, &mut next.alive] {
            ends.items
                .iter_mut()
                .for_each(|(_, end)| *end = (*end).max(past));
            // Redis sorts members with equal scores by their texts, which have the same order as the units.
            ends.items.sort_by_key(|(unit, end)| (*end, *unit));
        }
        next
    }

    /// Returns true if claims with flows have joined the queue.
    pub fn is_fair(&self) -> bool {
        !self.finishes.is_empty()
    }

    /// The finish tag of a flow.
    pub fn finish(&self, flow: u8) -> Option<i64> {
        let found = self.finishes.iter().find(|(other, _)| *other == flow);
        found.map(|(_, finish)| *finish)
    }

    /// Adds the keys to a server whose clock shows [`NOW`].
    pub fn load(&self, at: u8, server: &mut StandIn) {
        let [held, queue, alive, token] = keys(at);
        insert(server, held, sorted(&self.held, NOW_MS), self.held.ttl);
        insert(server, queue, sorted(&self.queue, NOW), self.queue.ttl);
        let mut ends = sorted(&self.alive, NOW_MS);
        if let Some(arrival) = self.last_arrival {
            ends.add(-(arrival + NOW) as f64, MARK);
        }
        for (flow, finish) in &self.finishes {
            let letter = Some(char::from(*flow)).filter(|_| *flow > 0);
            let name = FLOW.chars().chain(letter).collect::<String>();
            ends.add(-(finish + NOW) as f64, &name);
        }
        for ((process, permit), until) in &self.revoked {
            let score = -REVOKED_BELOW - NOW_MS - until;
            ends.add(score as f64, &format!("{REVOKED}p{process}.{permit}"));
        }
        insert(server, alive, ends, self.alive.ttl);
        if let Some((number, ttl)) = self.token {
            let value = Value::Text((number + NOW).to_string());
            let expires_at = Some(NOW_MS + ttl);
            server.insert(token, Entry { value, expires_at });
        }
    }

    /// Reads the keys of a server whose clock shows [`NOW`].
    ///
    /// # Errors
    ///
    /// If the keys have unexpected contents.
    pub fn save(at: u8, server: &StandIn) -> Result<Self, String> {
        let mut semaphore = Self::default();
        let [held, queue, alive, token] = keys(at);
        for (key, entry) in server.entries() {
            let ttl = entry.expires_at.map_or(FOREVER, |end| end - NOW_MS);
            match &entry.value {
                Value::Sorted(set) if *key == held => semaphore.held = units(set, NOW_MS, ttl)?,
                Value::Sorted(set) if *key == queue => semaphore.queue = units(set, NOW, ttl)?,
                Value::Sorted(set) if *key == alive => {
                    semaphore.alive = units(set, NOW_MS, ttl)?;
                    semaphore.last_arrival = last_arrival(set);
                    semaphore.revoked = revoked(set)?;
                    semaphore.finishes = finishes(set);
                }
                Value::Text(text) if *key == token => {
                    let number: i64 = text.parse().map_err(|_| format!("token {text}"))?;
                    semaphore.token = Some((number - NOW, ttl));
                }
                _ => {}
            }
        }
        Ok(semaphore)
    }
}

fn insert(server: &mut StandIn, key: String, set: Sorted, ttl: i64) {
    if !set.items().is_empty() {
        let value = Value::Sorted(set);
        let expires_at = Some(NOW_MS + ttl);
        server.insert(key, Entry { value, expires_at });
    }
}

fn sorted(units: &Units, now: i64) -> Sorted {
    let mut set = Sorted::default();
    for (unit, score) in &units.items {
        set.add((score + now) as f64, &unit.to_string());
    }
    set
}

fn units(set: &Sorted, now: i64, ttl: i64) -> Result<Units, String> {
    let items = set.items().iter();
    let is_other = |name: &str| name == MARK || name.starts_with(REVOKED) || name.starts_with(FLOW);
    let items = items.filter(|(_, name)| !is_other(name));
    let items = items.map(|(score, name)| {
        let unit = Unit::parse(name).ok_or_else(|| format!("a strange member {name}"))?;
        Ok((unit, *score as i64 - now))
    });
    let items = items.collect::<Result<_, String>>()?;
    Ok(Units { items, ttl })
}

fn last_arrival(set: &Sorted) -> Option<i64> {
    let found = set.items().iter().find(|(_, name)| name == MARK);
    found.map(|(score, _)| -*score as i64 - NOW)
}

fn finishes(set: &Sorted) -> Vec<(u8, i64)> {
    let flows = set.items().iter().filter_map(|(score, name)| {
        let flow = name.strip_prefix(FLOW)?.bytes().next();
        Some((flow.unwrap_or(0), -*score as i64 - NOW))
    });
    let mut finishes: Vec<_> = flows.collect();
    finishes.sort_unstable();
    finishes
}

fn revoked(set: &Sorted) -> Result<Vec<(Permit, i64)>, String> {
    let revoked = set.items().iter().filter_map(|(score, name)| {
        let permit = name.strip_prefix(REVOKED)?;
        let permit = Unit::permit_of(permit).ok_or_else(|| format!("a strange member {name}"));
        let until = -*score as i64 - REVOKED_BELOW - NOW_MS;
        Some(permit.map(|permit| (permit, until)))
    });
    let mut revoked = revoked.collect::<Result<Vec<_>, _>>()?;
    revoked.sort_unstable();
    Ok(revoked)
}
