//! The ids under which a server knows permits, as they are written, and as they are read from a server or an
//! operator.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::{borrow::Cow, fmt, str::from_utf8, sync::Arc};

/// What a permit's number grows by when the permit gets another id. A process numbers fewer permits.
const GENERATION: u64 = 1 << 48;

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

    /// The serial that a renewed id was made from.
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
        self.under(self.limit)
    }

    /// The same under another limit.
    pub(in crate::redis) fn under(&self, limit: u32) -> Self {
        let serial = self.serial.wrapping_add(GENERATION);
        let tag = self.tag.clone();
        Self {
            tag,
            ..Self::new(serial, limit, self.units())
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
}

impl Owner {
    /// A key of the store itself, or a channel.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The keys of the highest time, and of the processes.
    pub(in crate::redis) fn keys(&self) -> [String; 2] {
        ["clock", "processes"].map(|part| self.key(part))
    }

    /// The key of the limits that operators have set, in the slot of the processes: one call names both.
    pub(in crate::redis) fn limits_key(&self) -> String {
        self.key(&format!("limits{{{}}}", self.key("processes")))
    }

    /// This process, among all that live.
    pub(super) fn member(&self) -> String {
        format!("{}:{}", self.process, self.lease_ms)
    }

    /// The key in which this process says who it is.
    pub(in crate::redis) fn process_key(&self) -> String {
        self.key(&format!("process:{}", self.process))
    }

    /// The channel of messages to this process.
    pub(in crate::redis) fn channel(&self) -> String {
        self.key(&format!("wake:{}", self.process))
    }

    /// The ids of a permit's units. That of the permit is that of its first unit.
    pub(super) fn units<'a>(&'a self, permit: &'a PermitId) -> impl Iterator<Item = UnitId<'a>> {
        (permit.first..=permit.last).map(move |unit| UnitId(self, permit, unit))
    }
}

/// The id of one unit: `PROCESS.SERIAL.LIMIT.WEIGHT.LEASE`, then its [`Tag`], and for each unit after
/// the first `:UNIT` behind that. A script that another process calls can grant the permit from its id
/// alone.
pub(super) struct UnitId<'a>(
    pub(super) &'a Owner,
    pub(super) &'a PermitId,
    pub(super) u32,
);

impl fmt::Display for UnitId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(owner, permit, unit) = self;
        let (process, lease_ms) = (&owner.process, owner.lease_ms);
        let (serial, limit, weight) = (permit.serial, permit.limit, permit.weight);
        write!(f, "{process}.{serial:x}.{limit}.{weight}.{lease_ms}")?;
        permit.tag.iter().try_for_each(|tag| tag.fmt(f))?;
        match unit {
            1 => Ok(()),
            unit => write!(f, ":{unit}"),
        }
    }
}

/// The characters of a label, or a flow, that are percent-encoded, with `~` for the sign: what is left needs no
/// encoding in a URL, and no pattern of a script can mistake it for another part of the id.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// What operators see of a permit, as the end of its id: so it needs no key and no call of its own, and
/// ends with the permit.
///
/// `.SINCE` and, if the claim has a label, `.LABEL`; or, for units that were added to a permit,
/// `.SINCE.+SERIAL` with the serial of that permit. A flow follows the label as `~_SHARE_FLOW`, which is no label's.
/// SINCE is in base 36, so that most ids are short enough for Redis to store a small set in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct Tag {
    /// When the permit was claimed, ms of the server's clock as this process estimates it.
    pub(in crate::redis) since: u64,
    pub(in crate::redis) of: Of,
}

/// What is tagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum Of {
    Claim(Option<Arc<str>>, Option<Flow>),
    /// Units that were added to the permit of this serial.
    Added(u64),
}

/// The flow of a claim, and its share: `SHARE_NAME`, as ids have it. The name is letters, digits, `-`, `_` and `~`, and
/// never `~_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct Flow(Arc<str>);

/// What parts a flow from a label.
const FLOW: &str = "~_";

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(".")?;
        base36(f, self.since)?;
        match &self.of {
            Of::Claim(None, None) => Ok(()),
            Of::Claim(label, flow) => {
                f.write_str(".")?;
                let mut label = label.iter().map(|label| encoded(label.as_bytes()));
                label.try_for_each(|label| f.write_str(&label))?;
                flow.iter().try_for_each(|Flow(flow)| {
                    f.write_str(FLOW)?;
                    f.write_str(flow)
                })
            }
            Of::Added(serial) => write!(f, ".+{serial:x}"),
        }
    }
}

impl Flow {
    pub(in crate::redis) fn new(share: u32, name: &str) -> Self {
        Self(format!("{share}_{name}").into())
    }

    /// What it is called.
    pub(in crate::redis) fn name(&self) -> &str {
        let name = self.0.split_once('_');
        name.map_or("", |(_, name)| name)
    }

    fn read(text: &str) -> Option<Self> {
        let (share, name) = text.split_once('_')?;
        number::<u32>(share, 10)?;
        is_plain(name).then(|| Self(text.into()))
    }
}

fn base36(f: &mut fmt::Formatter<'_>, mut number: u64) -> fmt::Result {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    // As many as the highest number has.
    let (mut digits, mut first) = ([0; 13], 13);
    loop {
        first -= 1;
        digits[first] = DIGITS[(number % 36) as usize];
        number /= 36;
        if number == 0 {
            return f.write_str(from_utf8(&digits[first..]).unwrap_or_default());
        }
    }
}

/// How a label, or a flow, is written.
pub(super) fn encoded(bytes: &[u8]) -> Cow<'_, str> {
    let text = Cow::from(percent_encode(bytes, ENCODED));
    match text.contains('%') {
        true => text.replace('%', "~").into(),
        false => text,
    }
}

/// What was encoded so.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('~', "%")).collect()
}

/// A permit's id as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct ReadId<'a> {
    pub(in crate::redis) process: &'a str,
    pub(in crate::redis) serial: u64,
    pub(in crate::redis) limit: u32,
    pub(in crate::redis) weight: u32,
    pub(in crate::redis) lease_ms: u64,
    /// `None`: an older version of this crate has written it.
    pub(in crate::redis) tag: Option<Tag>,
}

impl<'a> ReadId<'a> {
    /// Reads the id of a permit's first unit.
    pub(in crate::redis) fn read(id: &'a str) -> Option<Self> {
        let parts: Vec<_> = id.split('.').collect();
        let [process, serial, limit, weight, lease_ms, tag @ ..] = &parts[..] else {
            return None;
        };
        Some(Self {
            process: is_word(process).then_some(process)?,
            serial: number::<u64>(serial, 16)? % GENERATION,
            limit: number(limit, 10)?,
            weight: number(weight, 10)?,
            lease_ms: number(lease_ms, 10)?,
            tag: match tag {
                [] => None,
                tag => Some(Tag::read(tag)?),
            },
        })
    }
}

impl ReadId<'_> {
    /// The serial of the permit that its units were added to.
    pub(in crate::redis) fn added_to(&self) -> Option<u64> {
        match self.tag.as_ref()?.of {
            Of::Added(serial) => Some(serial),
            Of::Claim(..) => None,
        }
    }
}

impl Tag {
    /// Reads the parts of an id that it is.
    fn read(parts: &[&str]) -> Option<Self> {
        let (since, of) = match *parts {
            [since] => (since, Of::Claim(None, None)),
            [since, of] => match of.strip_prefix('+') {
                Some(serial) => (since, Of::Added(number(serial, 16)?)),
                None => (since, Of::claim(of)?),
            },
            _ => return None,
        };
        let since = number(since, 36)?;
        Some(Self { since, of })
    }
}

impl Of {
    /// Reads a label, a flow, or both.
    fn claim(text: &str) -> Option<Self> {
        let Some((label, flow)) = text.split_once(FLOW) else {
            return Some(Self::Claim(Some(read_label(text)?), None));
        };
        let flow = Flow::read(flow)?;
        let label = match label {
            "" => None,
            label => Some(read_label(label)?),
        };
        Some(Self::Claim(label, Some(flow)))
    }
}

fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| b"-_~".contains(&byte) || byte.is_ascii_alphanumeric();
    text.bytes().all(is_plain)
}

fn read_label(text: &str) -> Option<Arc<str>> {
    is_plain(text).then(|| String::from_utf8_lossy(&decoded(text)).into())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn number<T: TryFrom<u64>>(text: &str, radix: u32) -> Option<T> {
    let number = u64::from_str_radix(text, radix).ok();
    T::try_from(number.filter(|_| is_word(text))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_follows_the_label_in_an_id() {
        let flow = Flow::new(4, "a_b");
        assert_eq!(flow.name(), "a_b");
        let tag = |label: Option<&str>| {
            let (since, of) = (36, Of::Claim(label.map(Arc::from), Some(flow.clone())));
            Tag { since, of }.to_string()
        };
        assert_eq!(tag(None), ".10.~_4_a_b");
        assert_eq!(tag(Some("GET /")), ".10.GET~20~2F~_4_a_b");
    }

    fn read_back(of: Of) {
        let tag = Tag {
            since: 1_795_345_200_123,
            of,
        };
        let id = format!("0123456789abcdef.1a.5.1.10000{tag}");
        let id = ReadId::read(&id).expect("it is an id");
        assert_eq!((id.process, id.serial), ("0123456789abcdef", 0x1a));
        assert_eq!((id.limit, id.weight, id.lease_ms), (5, 1, 10_000));
        assert_eq!(id.tag, Some(tag));
    }

    #[test]
    fn what_is_tagged_is_read_back() {
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
        for label in labels {
            for flow in [
                None,
                Some(Flow::new(4, "a_1~20-")),
                Some(Flow::new(100, "~-0f")),
            ] {
                read_back(Of::Claim(Some(label.into()), flow));
            }
        }
        read_back(Of::Claim(None, None));
        read_back(Of::Claim(None, Some(Flow::new(1, "ann"))));
        read_back(Of::Added(0x2b));
        let of = Of::Claim(None, None);
        let oldest = ReadId::read("p.1.5.1.1.0").and_then(|id| id.tag);
        assert_eq!(oldest, Some(Tag { since: 0, of }));
    }

    #[test]
    fn the_id_of_an_older_version_has_no_tag() {
        let id = ReadId::read("p.1.5.1.10000").expect("it is an id");
        assert_eq!(id.tag, None);
    }

    #[test]
    fn what_is_no_id_is_not_read() {
        let texts = [
            "",
            "p",
            "p.1.5.1",
            "p.1.5.1.10000:2",
            "p.1.5.1.+1",
            "p.g.5.1.1",
            "*.1.5.1.1",
            "p.1.5.1.1.",
            "p.1.5.1.1.a.",
            "p.1.5.1.1.a.b.c",
            "p.1.5.1.1.a.%41",
            "p.1.5.1.1.a.b:2",
            "p.+1.5.1.1",
            "p.1.99999999999.1.1",
            "p.1.5.1.1.a.+",
            "p.1.5.1.1.-a",
            "p.1.5.1.1.a.b~_1",
            "p.1.5.1.1.a.b~_x_ann",
            "p.1.5.1.1.a.b~_1_%",
            " p.1.5.1.1",
        ];
        for text in texts {
            let label = Of::Claim(Some("".into()), None);
            let read =
                ReadId::read(text).filter(|id| id.tag.as_ref().is_none_or(|tag| tag.of != label));
            assert_eq!(read, None, "{text}");
        }
    }
}
