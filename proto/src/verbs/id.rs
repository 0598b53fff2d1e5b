//! The ids under which a server knows the units of permits: one type, [`UnitId`], writes and reads them.
//!
//! An id is `PROCESS.PERMIT.LEASE.GENERATION.LIMIT.WEIGHT.LEASE_MS.SINCE.SHARE.FLOW.LABEL`, and for each unit after the
//! first `:UNIT` follows. Each part has a fixed place. SHARE, FLOW and LABEL may be empty. A script that another
//! process calls can grant the permit from its id alone.
//!
//! | part | |
//! |---|---|
//! | PROCESS | letters and digits |
//! | PERMIT | the permit's number in its process |
//! | LEASE | 0: what the permit was claimed with. Each growth of the permit has the next number |
//! | GENERATION | grows when the lease gets another id |
//! | LIMIT | the units of the semaphore that may be held together |
//! | WEIGHT | the units that the id was made with |
//! | LEASE_MS | how long the lease lasts without a refresh |
//! | SINCE | when the permit or the growth was claimed, ms of the server's clock as the process estimates it |
//! | SHARE, FLOW | the claim's flow and its share |
//! | LABEL | what operators see of the claim |
//!
//! Numbers are in base 36, but UNIT is decimal. So an id without a flow and a label has at most 64 characters until a
//! process has made 36^9 permits. Up to this length Redis stores a small set in one piece.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::{borrow::Cow, fmt, str::from_utf8, sync::Arc};

/// Names a lease within its process: `PERMIT.LEASE.GENERATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseName {
    pub permit: u64,
    pub lease: u32,
    pub generation: u32,
}

impl LeaseName {
    /// The first name of a lease: of what the permit is claimed with, or of the growth of this number.
    pub fn new(permit: u64, lease: u32) -> Self {
        let generation = 0;
        Self {
            permit,
            lease,
            generation,
        }
    }

    /// Reads the name as messages write it.
    pub(super) fn read(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('.').collect();
        Self::from_parts(parts.try_into().ok()?)
    }

    fn from_parts([permit, lease, generation]: [&str; 3]) -> Option<Self> {
        Some(Self {
            permit: number(permit)?,
            lease: number(lease)?,
            generation: number(generation)?,
        })
    }

    /// True for the first id of what a permit is claimed with.
    pub fn is_first(self) -> bool {
        (self.lease, self.generation) == (0, 0)
    }
}

/// The parts of an id that differ between the leases of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseId {
    pub name: LeaseName,
    pub limit: u32,
    pub weight: u32,
    pub since: u64,
    pub flow: Option<Flow>,
    /// Not empty.
    pub label: Option<Arc<str>>,
}

/// When units of a budget count as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// All of them when the claim is granted: a rate.
    Grant,
    /// As the holder settles them.
    Settlement,
}

/// A lease's reservation of units of a budget. It is one unit of its id, whose weight is the number of reserved units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    pub charge: Charge,
    /// The units that count as used so far. `None`: the holder has settled nothing.
    pub settled: Option<u32>,
    /// True if a release must leave its member, without units, because an acquire of it may still run.
    pub keeps_member: bool,
}

/// The units that a lease has of one semaphore or budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseUnits {
    pub id: LeaseId,
    /// The first and the last unit that it has now. After a partial release, these are fewer than the id's weight.
    first: u32,
    last: u32,
    /// `None` for a semaphore.
    pub reservation: Option<Reservation>,
}

impl LeaseUnits {
    /// All units of an id.
    pub fn new(id: LeaseId) -> Self {
        let (first, last) = (1, id.weight);
        Self {
            id,
            first,
            last,
            reservation: None,
        }
    }

    /// The reservation of an id.
    pub fn reserved(id: LeaseId, charge: Charge) -> Self {
        let reservation = Reservation {
            charge,
            settled: None,
            keeps_member: false,
        };
        Self {
            id,
            first: 1,
            last: 1,
            reservation: Some(reservation),
        }
    }

    /// The number of members that a server has of the whole id: one for each unit, or one for a reservation.
    pub fn members(&self) -> u32 {
        self.reservation.map_or(self.id.weight, |_| 1)
    }

    /// Notes the use of a budget so far. A total never shrinks.
    pub fn settle(&mut self, used: u32) {
        if let Some(reservation) = &mut self.reservation {
            reservation.settled = Some(reservation.settled.unwrap_or(0).max(used));
        }
    }

    /// Notes that its claim is granted: the units of a rate count as used at once.
    pub fn charge(&mut self) {
        let weight = self.id.weight;
        if let Some(reservation) = &mut self.reservation
            && reservation.charge == Charge::Grant
        {
            reservation.settled = Some(weight);
        }
    }

    /// Notes that the server has lost the reservation, so that all of it counts as used.
    pub fn settle_lost(&mut self) {
        self.settle(self.id.weight);
    }

    /// Notes that the holder uses no more. If it has settled nothing, the whole reservation counts as used.
    pub fn settle_rest(&mut self) {
        let weight = self.id.weight;
        if let Some(reservation) = &mut self.reservation {
            reservation.settled = reservation.settled.or(Some(weight));
        }
    }

    /// The number of units that it has now. A reservation counts as one.
    pub fn count(&self) -> u32 {
        self.last + 1 - self.first
    }

    /// The first `keep` units, and the others.
    pub fn split(&self, keep: u32) -> (Self, Self) {
        let (mut kept, mut others) = (self.clone(), self.clone());
        (kept.last, others.first) = (self.first + keep - 1, self.first + keep);
        (kept, others)
    }

    /// The same number of units under a new id.
    pub fn renewed(&self) -> Self {
        self.under(self.id.limit)
    }

    /// The same number of units under a new id with this limit.
    pub fn under(&self, limit: u32) -> Self {
        let mut id = self.id.clone();
        id.limit = limit;
        id.name.generation = id.name.generation.wrapping_add(1);
        let Some(reservation) = self.reservation else {
            id.weight = self.count();
            return Self::new(id);
        };
        Self {
            reservation: Some(reservation),
            ..Self::reserved(id, reservation.charge)
        }
    }

    /// The ids under which a server knows the units of this process.
    pub(super) fn ids<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = UnitId<'a>> {
        (self.first..=self.last).map(|unit| UnitId::new(owner, &self.id, unit))
    }
}

/// The number of the schema, behind the prefix that stores are built with. It changes with the meaning of any key, so
/// that releases with different schemas share nothing: schema 1 had the keys of semaphores (`{`) and of the store
/// (letters) at this place.
pub const SCHEMA: &str = "2:";

/// The window of a budget in ms, with which its name ends. `None` for a semaphore, whose name ends with a brace.
pub fn window_of(name: &str) -> Option<u32> {
    let (_, window) = name.rsplit_once('}')?;
    window.parse().ok()
}

/// The name of a semaphore or a budget without a window.
pub fn tag_of(name: &str) -> &str {
    name.rfind('}').map_or(name, |end| &name[..=end])
}

/// The process name, lease and key prefix that all calls of a store share.
#[derive(Debug, Clone)]
pub struct Owner {
    pub process: Arc<str>,
    pub lease_ms: u64,
    /// The prefix of all keys.
    pub prefix: String,
    /// A description of the process for operators, or empty.
    pub about: String,
}

impl Owner {
    /// The prefix that the store was built with.
    pub fn configured_prefix(&self) -> &str {
        self.prefix.strip_suffix(SCHEMA).unwrap_or(&self.prefix)
    }

    /// A key of the store itself, or a channel.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The keys of the highest clock time and of the set of processes.
    pub fn keys(&self) -> [String; 2] {
        ["clock", "processes"].map(|part| self.key(part))
    }

    /// The key of the limits that operators have set, in the slot of the processes: one call names both.
    pub fn limits_key(&self) -> String {
        self.key(&format!("limits{{{}}}", self.key("processes")))
    }

    /// This process's member in the set of live processes.
    pub(super) fn member(&self) -> String {
        format!("{}:{}", self.process, self.lease_ms)
    }

    /// The key of this process's description.
    pub fn process_key(&self) -> String {
        self.key(&format!("process:{}", self.process))
    }

    /// The channel of messages to this process.
    pub fn channel(&self) -> String {
        self.key(&format!("wake:{}", self.process))
    }
}

/// The name of a process: a random number, half as long as a UUID, because it is part of every id that travels and is
/// stored.
pub fn process_name(random: u64) -> String {
    Digits::<62>(random).to_string()
}

/// The id of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitId<'a> {
    pub process: &'a str,
    pub lease_ms: u64,
    pub lease: Cow<'a, LeaseId>,
    /// From 1 to the weight.
    pub unit: u32,
}

impl<'a> UnitId<'a> {
    pub(super) fn new(owner: &'a Owner, lease: &'a LeaseId, unit: u32) -> Self {
        Self {
            process: &owner.process,
            lease_ms: owner.lease_ms,
            lease: Cow::Borrowed(lease),
            unit,
        }
    }

    /// Reads an id as [`Display`](fmt::Display) writes it. Any other text is refused.
    pub fn read(text: &'a str) -> Option<Self> {
        let (id, unit) = match text.split_once(':') {
            Some((id, unit)) => (id, unit.parse().ok()?),
            None => (text, 1),
        };
        let parts: Vec<_> = id.split('.').collect();
        let [
            process,
            permit,
            lease,
            generation,
            limit,
            weight,
            lease_ms,
            since,
            share,
            flow,
            label,
        ] = parts[..]
        else {
            return None;
        };
        let id = LeaseId {
            name: LeaseName::from_parts([permit, lease, generation])?,
            limit: number(limit)?,
            weight: number(weight)?,
            since: number(since)?,
            flow: match (share, flow) {
                ("", "") => None,
                (share, flow) if is_plain(flow) => Some(Flow::new(number(share)?, flow)),
                _ => return None,
            },
            label: match label {
                "" => None,
                label => Some(String::from_utf8(decoded(label)).ok()?.into()),
            },
        };
        let is_unit = (1..=id.weight).contains(&unit);
        let read = Self {
            process: Some(process).filter(|process| is_word(process) && is_unit)?,
            lease_ms: number(lease_ms)?,
            lease: Cow::Owned(id),
            unit,
        };
        // Otherwise it is written in another way, for example with leading zeros.
        (read.to_string() == text).then_some(read)
    }
}

impl fmt::Display for UnitId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseId {
            name,
            limit,
            weight,
            since,
            flow,
            label,
        } = &*self.lease;
        f.write_str(self.process)?;
        let of_lease = [name.permit, name.lease.into(), name.generation.into()];
        let of_units = [(*limit).into(), (*weight).into(), self.lease_ms, *since];
        for number in of_lease.into_iter().chain(of_units) {
            f.write_str(".")?;
            Digits::<36>(number).fmt(f)?;
        }
        f.write_str(".")?;
        f.write_str(flow.as_ref().map_or(".", |Flow(flow)| flow))?;
        f.write_str(".")?;
        if let Some(label) = label {
            f.write_str(&encoded(label.as_bytes()))?;
        }
        match self.unit {
            1 => Ok(()),
            unit => write!(f, ":{unit}"),
        }
    }
}

/// The characters of a label or a flow that are percent-encoded, with `~` instead of `%`. The encoded text needs no
/// encoding in a URL, and no pattern of a script can mistake it for another part of the id.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The flow of a claim, and its share: `SHARE.FLOW`, as ids have it. The name is letters, digits, `-`, `_` and `~`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow(Arc<str>);

impl Flow {
    pub fn new(share: u32, name: &str) -> Self {
        Self(format!("{}.{name}", Digits::<36>(share.into())).into())
    }

    pub fn name(&self) -> &str {
        let name = self.0.split_once('.');
        name.map_or("", |(_, name)| name)
    }
}

/// A number in a base of up to 62.
#[derive(Debug)]
pub struct Digits<const BASE: u64>(pub u64);

impl<const BASE: u64> fmt::Display for Digits<BASE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        // The highest number has 13 digits in base 36.
        let (mut digits, mut first, mut number) = ([0; 13], 13, self.0);
        loop {
            first -= 1;
            digits[first] = DIGITS[(number % BASE) as usize];
            number /= BASE;
            if number == 0 {
                return f.write_str(from_utf8(&digits[first..]).unwrap_or_default());
            }
        }
    }
}

/// Encodes a label or a flow.
pub fn encoded(bytes: &[u8]) -> Cow<'_, str> {
    let text = Cow::from(percent_encode(bytes, ENCODED));
    match text.contains('%') {
        true => text.replace('%', "~").into(),
        false => text,
    }
}

/// Reverses [`encoded`].
pub fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('~', "%")).collect()
}

fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| b"-_~".contains(&byte) || byte.is_ascii_alphanumeric();
    text.bytes().all(is_plain)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Reads a number in base 36.
pub fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    T::try_from(u64::from_str_radix(text, 36).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> LeaseId {
        LeaseId {
            name: LeaseName {
                permit: 26,
                lease: 0,
                generation: 0,
            },
            limit: 5,
            weight: 1,
            since: 1_795_345_200_123,
            flow: None,
            label: None,
        }
    }

    fn unit(lease: &LeaseId, unit: u32) -> UnitId<'_> {
        UnitId {
            process: "0a9ZKq",
            lease_ms: 10_000,
            lease: Cow::Borrowed(lease),
            unit,
        }
    }

    #[test]
    fn each_part_of_an_id_has_a_fixed_place() {
        let mut lease = id();
        assert_eq!(
            unit(&lease, 1).to_string(),
            "0a9ZKq.q.0.0.5.1.7ps.mwrq6ebf..."
        );
        lease.label = Some("GET /".into());
        assert_eq!(
            unit(&lease, 1).to_string(),
            "0a9ZKq.q.0.0.5.1.7ps.mwrq6ebf...GET~20~2F"
        );
        lease.flow = Some(Flow::new(40, "a_b"));
        (lease.name.lease, lease.name.generation) = (36, 2);
        (lease.limit, lease.weight) = (100, 40);
        let text = "0a9ZKq.q.10.2.2s.14.7ps.mwrq6ebf.14.a_b.GET~20~2F:37";
        assert_eq!(unit(&lease, 37).to_string(), text);
        lease.label = None;
        let text = "0a9ZKq.q.10.2.2s.14.7ps.mwrq6ebf.14.a_b.";
        assert_eq!(unit(&lease, 1).to_string(), text);
    }

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let labels = [
            "a",
            "GET /market",
            "a.b:c",
            "~",
            "+1",
            "%41",
            "\u{1f600}",
            "\0",
            "-_",
        ];
        let labels = labels.map(|label| Some(Arc::from(label)));
        let flows = [
            Flow::new(4, "a_1~20-"),
            Flow::new(100, "~-0f"),
            Flow::new(1, ""),
        ];
        let (largest, mut count) = (u32::MAX, 0);
        for label in labels.into_iter().chain([None]) {
            for flow in flows.iter().cloned().map(Some).chain([None]) {
                for (weight, number) in [(1, 1), (2, 1), (2, 2), (1_000, 999), (largest, largest)] {
                    let mut lease = LeaseId {
                        flow: flow.clone(),
                        label: label.clone(),
                        weight,
                        ..id()
                    };
                    if number > 1 {
                        (lease.limit, lease.since) = (largest, u64::MAX);
                        (lease.name.permit, lease.name.lease) = (u64::MAX, largest);
                        lease.name.generation = number;
                    }
                    let (written, text) = (unit(&lease, number), unit(&lease, number).to_string());
                    assert_eq!(UnitId::read(&text), Some(written), "{text}");
                    count += 1;
                }
            }
        }
        // Nine labels or none, three flows or none, and five units.
        assert_eq!(count, 200);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        let id = "p.1.0.0.5.2.7ps.0...";
        assert!(UnitId::read(id).is_some() && UnitId::read(&format!("{id}:2")).is_some());
        let texts = [
            "",
            "p",
            "p.1.5.1.10000",
            "p.1.5.1.10000.0.a",
            "p.1.0.0.5.2.7ps.0..",
            "p.1.0.0.5.2.7ps.0....",
            ".1.0.0.5.2.7ps.0...",
            "*.1.0.0.5.2.7ps.0...",
            " p.1.0.0.5.2.7ps.0...",
            "p.1.0.0.5.2.7ps.0... ",
            "p..0.0.5.2.7ps.0...",
            "p.1..0.5.2.7ps.0...",
            "p.1.0..5.2.7ps.0...",
            "p.1.0.0..2.7ps.0...",
            "p.1.0.0.5..7ps.0...",
            "p.1.0.0.5.2..0...",
            "p.1.0.0.5.2.7ps....",
            "p.01.0.0.5.2.7ps.0...",
            "p.1.0.0.5.2.7PS.0...",
            "p.+1.0.0.5.2.7ps.0...",
            "p.1.0.0.1z141z4.2.7ps.0...",
            "p.1.0.0.5.0.7ps.0...",
            "p.1.0.0.5.2.7ps.0..a.",
            "p.1.0.0.5.2.7ps.0.01.a.",
            "p.1.0.0.5.2.7ps.0.1.a b.",
            "p.1.0.0.5.2.7ps.0.1.%.",
            "p.1.0.0.5.2.7ps.0...%41",
            "p.1.0.0.5.2.7ps.0...~41",
            "p.1.0.0.5.2.7ps.0...~2f",
            "p.1.0.0.5.2.7ps.0...~FF",
            "p.1.0.0.5.2.7ps.0...:",
            "p.1.0.0.5.2.7ps.0...:1",
            "p.1.0.0.5.2.7ps.0...:02",
            "p.1.0.0.5.2.7ps.0...:3",
            "p.1.0.0.5.2.7ps.0...:2:2",
        ];
        for text in texts {
            assert_eq!(UnitId::read(text), None, "{text}");
        }
    }

    /// Redis stores a sorted set in one piece while no member is longer than 64 bytes.
    #[test]
    fn the_longest_id_without_a_flow_and_a_label_has_64_bytes() {
        let process = process_name(u64::MAX);
        let (permits, leases) = (36_u64.pow(9) - 1, 36_u32.pow(3) - 1);
        let name = LeaseName {
            permit: permits,
            lease: leases,
            generation: leases,
        };
        let lease = LeaseId {
            name,
            limit: u32::MAX,
            weight: 1_000,
            // Until the year 2059.
            since: 36_u64.pow(8) - 1,
            ..id()
        };
        let longest = UnitId {
            process: &process,
            lease_ms: 24 * 60 * 60 * 1_000,
            lease: Cow::Owned(lease),
            unit: 1_000,
        };
        assert_eq!(longest.to_string().len(), 64, "{longest}");
    }

    #[test]
    fn the_names_of_processes_are_distinct_words() {
        assert_eq!([0, 61, 62].map(process_name), ["0", "Z", "10"]);
        let longest = process_name(u64::MAX);
        assert!(longest.len() == 11 && is_word(&longest));
    }
}
