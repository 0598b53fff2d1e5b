//! Ids of permits, as they are read from a server, or as an operator names them.

use super::{id::GENERATION, tag::decoded};

/// A permit's id as it was read from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct ReadId<'a> {
    pub(in crate::redis) process: &'a str,
    pub(in crate::redis) serial: u64,
    pub(in crate::redis) limit: u32,
    pub(in crate::redis) weight: u32,
    pub(in crate::redis) lease_ms: u64,
    /// `None`: an older version of this crate has written it.
    pub(in crate::redis) since: Option<u64>,
    pub(in crate::redis) label: Option<String>,
    /// Of units that were added to a permit, that permit's serial.
    added_to: Option<u64>,
}

impl<'a> ReadId<'a> {
    /// Reads the id of a permit's first unit.
    pub(in crate::redis) fn read(id: &'a str) -> Option<Self> {
        let mut parts = id.split('.');
        let mut next = || parts.next();
        let process = next().filter(|process| is_word(process))?;
        let serial = u64::from_str_radix(next().filter(|serial| is_word(serial))?, 16).ok()?;
        let limit = number(next()?)?;
        let weight = number(next()?)?;
        let lease_ms = number(next()?)?;
        let since = next();
        let since = match since {
            None => None,
            Some(since) => {
                Some(u64::from_str_radix(Some(since).filter(|it| is_word(it))?, 36).ok()?)
            }
        };
        let last = next();
        let added_to = last.and_then(|last| last.strip_prefix('+'));
        let added_to = match added_to {
            None => None,
            Some(serial) => {
                Some(u64::from_str_radix(Some(serial).filter(|it| is_word(it))?, 16).ok()?)
            }
        };
        let label = last.filter(|_| added_to.is_none());
        let is_plain = |label: &str| {
            label
                .bytes()
                .all(|byte| b"-_~".contains(&byte) || byte.is_ascii_alphanumeric())
        };
        if next().is_some() || !label.is_none_or(is_plain) {
            return None;
        }
        Some(Self {
            process,
            serial: serial % GENERATION,
            limit: u32::try_from(limit).ok()?,
            weight: u32::try_from(weight).ok()?,
            lease_ms,
            since,
            label: label.map(decoded),
            added_to,
        })
    }

    /// The serial of the permit that the units belong to.
    pub(in crate::redis) fn permit(&self) -> u64 {
        self.added_to.unwrap_or(self.serial)
    }

    pub(in crate::redis) fn is_added(&self) -> bool {
        self.added_to.is_some()
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn number(text: &str) -> Option<u64> {
    is_word(text).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::protocol::{Of, Tag};

    fn read_back(tag: &Tag) -> (Option<u64>, Option<String>, Option<u64>) {
        let id = format!("0123456789abcdef.1a.5.1.10000{tag}");
        let id = ReadId::read(&id).expect("it is an id");
        assert_eq!((id.process, id.serial), ("0123456789abcdef", 0x1a));
        assert_eq!((id.limit, id.weight, id.lease_ms), (5, 1, 10_000));
        (id.since, id.label, id.added_to)
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
            let of = Of::Claim(Some(label.into()));
            let read = read_back(&Tag {
                since: 1_795_345_200_123,
                of,
            });
            assert_eq!(
                read,
                (Some(1_795_345_200_123), Some(label.to_owned()), None)
            );
        }
        let since = 0;
        let none = read_back(&Tag {
            since,
            of: Of::Claim(None),
        });
        assert_eq!(none, (Some(0), None, None));
        let added = read_back(&Tag {
            since,
            of: Of::Added(0x2b),
        });
        assert_eq!(added, (Some(0), None, Some(0x2b)));
    }

    #[test]
    fn the_id_of_an_older_version_has_no_tag() {
        let id = ReadId::read("p.1.5.1.10000").expect("it is an id");
        assert_eq!((id.since, id.label, id.added_to), (None, None, None));
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
            " p.1.5.1.1",
        ];
        for text in texts {
            assert_eq!(
                ReadId::read(text).filter(|id| id.label.as_deref() != Some("")),
                None,
                "{text}"
            );
        }
    }
}
