//! The messages that scripts send.

use crate::{
    stand_in::StandIn,
    time::NOW,
    unit::{Permit, Unit},
};

/// A message to a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// The waiter's client.
    pub client: u8,
    /// The level of its claim.
    pub level: u8,
    /// The token in microseconds from now, or `None` if the waiter should poll.
    pub token: Option<i64>,
}

/// The messages to waiters, and the revoked permits.
type Messages = (Vec<Wake>, Vec<Permit>);

/// Reads the messages of a call.
///
/// # Errors
///
/// If a message has a form that the scripts' headers do not document.
pub(crate) fn messages(server: &StandIn) -> Result<Messages, String> {
    let (mut wakes, mut revoked) = (Vec::new(), Vec::new());
    for (channel, message) in &server.published {
        let strange = || format!("a strange message {message} to {channel}");
        let process = channel.strip_prefix("swake:").ok_or_else(strange)?;
        let (lease, text) = message.split_once(' ').ok_or_else(strange)?;
        if text == "revoked" {
            let permit = Unit::permit_of(&format!("{process}.{lease}"));
            revoked.push(permit.ok_or_else(strange)?);
            continue;
        }
        let parts: Vec<_> = lease.split('.').collect();
        let [permit, lease, _] = parts[..] else {
            return Err(strange());
        };
        let (client, level) = Unit::owner(process, permit, lease).ok_or_else(strange)?;
        let token = token(text).ok_or_else(strange)?;
        wakes.push(Wake {
            client,
            level,
            token,
        });
    }
    Ok((wakes, revoked))
}

/// Reads `TOKEN HELD`, if the text has this form. Token 0 is `Some(None)`: the waiter should poll.
fn token(text: &str) -> Option<Option<i64>> {
    let (token, held) = text.split_once(' ')?;
    let (token, _): (i64, u32) = (token.parse().ok()?, held.parse().ok()?);
    Some((token != 0).then_some(token - NOW))
}
