//! What operators see of a permit, as the end of its id: so it needs no key and no call of its own, and
//! ends with the permit.
//!
//! `.SINCE` and, if the claim has a label, `.LABEL`; or, for units that were added to a permit,
//! `.SINCE.+SERIAL` with the serial of that permit. SINCE is in base 36, so that most ids are short enough
//! for Redis to store a small set in one piece.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{fmt, str::from_utf8, sync::Arc};

/// The characters of a label that are percent-encoded, with `~` for the sign: what is left needs no
/// encoding in a URL, and no pattern of a script can mistake it for another part of the id.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// See the module docs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) struct Tag {
    /// When the permit was claimed, ms of the server's clock as this process estimates it.
    pub(in crate::redis) since: u64,
    pub(in crate::redis) of: Of,
}

/// What is tagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum Of {
    Claim(Option<Arc<str>>),
    /// Units that were added to the permit of this serial.
    Added(u64),
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(".")?;
        base36(f, self.since)?;
        match &self.of {
            Of::Claim(None) => Ok(()),
            Of::Claim(Some(label)) => encoded(f, label),
            Of::Added(serial) => write!(f, ".+{serial:x}"),
        }
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

fn encoded(f: &mut fmt::Formatter<'_>, label: &str) -> fmt::Result {
    f.write_str(".")?;
    for part in utf8_percent_encode(label, ENCODED) {
        match part.strip_prefix('%') {
            Some(hex) => write!(f, "~{hex}")?,
            None => f.write_str(part)?,
        }
    }
    Ok(())
}

/// The label that was encoded so.
pub(super) fn decoded(label: &str) -> String {
    let label = label.replace('~', "%");
    percent_decode_str(&label).decode_utf8_lossy().into_owned()
}
