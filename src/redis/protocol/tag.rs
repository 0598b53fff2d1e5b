//! What operators see of a permit, as the end of its id: so it needs no key and no call of its own, and
//! ends with the permit.
//!
//! `.SINCE` and, if the claim has a label, `.LABEL`; or, for units that were added to a permit,
//! `.SINCE.+SERIAL` with the serial of that permit. SINCE is in base 36, so that most ids are short enough
//! for Redis to store a small set in one piece.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{borrow::Cow, fmt};

/// The characters of a label that are percent-encoded, with `~` for the sign: what is left needs no
/// encoding in a URL, and no pattern of a script can mistake it for another part of the id.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// See the module docs.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Tag<'a> {
    /// When the permit was claimed, ms of the server's clock as this process estimates it.
    pub(in crate::redis) since: u64,
    pub(in crate::redis) of: Of<'a>,
}

/// What is tagged.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) enum Of<'a> {
    Claim(Option<&'a str>),
    /// Units that were added to the permit of this serial.
    Added(u64),
}

impl fmt::Display for Tag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", base36(self.since))?;
        match self.of {
            Of::Claim(None) => Ok(()),
            Of::Claim(Some(label)) => {
                let encoded = Cow::from(utf8_percent_encode(label, ENCODED));
                write!(f, ".{}", encoded.replace('%', "~"))
            }
            Of::Added(serial) => write!(f, ".+{serial:x}"),
        }
    }
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = char::from_digit((number % 36) as u32, 36);
        digits.extend(digit);
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// The label that was encoded so.
pub(super) fn decoded(label: &str) -> String {
    let label = label.replace('~', "%");
    percent_decode_str(&label).decode_utf8_lossy().into_owned()
}
