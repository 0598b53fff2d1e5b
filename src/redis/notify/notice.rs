//! What a message says.

use crate::redis::protocol::PermitId;

/// The content of a message: a token, and how many units were held then. Token 0 makes a waiter poll, and
/// the highest one says that an operator has revoked the permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Notice {
    pub(in crate::redis) token: u64,
    pub(in crate::redis) held: u32,
}

impl Notice {
    pub(super) const REVOKED: Self = Self {
        token: u64::MAX,
        held: 0,
    };

    /// What counts after another notice: nothing but that, if it is a revocation.
    pub(super) fn after(self, last: Option<Self>) -> Self {
        last.filter(Self::is_revoked).unwrap_or(self)
    }

    pub(in crate::redis) fn is_revoked(&self) -> bool {
        *self == Self::REVOKED
    }
}

/// Reads `SERIAL TOKEN HELD`, or `SERIAL revoked`.
pub(super) fn read(message: &str) -> Option<(u64, Notice)> {
    let mut words = message.split(' ');
    let serial = u64::from_str_radix(words.next()?, 16).ok()?;
    let token = match words.next()? {
        "revoked" => return Some((PermitId::base(serial), Notice::REVOKED)),
        token => token.parse().ok()?,
    };
    let held = words.next()?.parse().ok()?;
    Some((serial, Notice { token, held }))
}
