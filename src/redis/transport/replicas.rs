//! Whether replicas have what a call has written.
//!
//! `WAIT` travels behind the commands of a call, on their connection, so it speaks of the very server
//! that ran them. A replica that acknowledges has applied all that was written before, so a failover
//! to it keeps that.

use super::connection::Replies;
use crate::redis::error::Error;
use redis::{Cmd, Value, cmd};
use std::time::Duration;

/// Adds the command that waits for replicas, if any are needed.
pub(in crate::redis) fn with_wait(
    mut commands: Vec<Cmd>,
    replicas: u32,
    bound: Duration,
) -> Vec<Cmd> {
    if replicas > 0 {
        // Zero would be no bound.
        let bound = bound.as_millis().max(1) as u64;
        commands.push(cmd("WAIT").arg(replicas).arg(bound).take());
    }
    commands
}

/// Takes the reply to [`with_wait`]'s command away. Unless enough replicas have what was written, no
/// answer counts.
pub(in crate::redis) fn confirmed(mut replies: Replies, replicas: u32) -> Replies {
    if replicas == 0 {
        return replies;
    }
    let error = match replies.pop() {
        Some(Ok(Value::Int(have))) if have >= i64::from(replicas) => return replies,
        Some(Ok(Value::Int(have))) => Error::NotReplicated(have.try_into().unwrap_or_default()),
        // It is no primary any more, so it does not wait for replicas.
        Some(Err(error)) if error.is_code(&["UNBLOCKED"]) => Error::NotReplicated(0),
        Some(Err(error)) => error,
        Some(Ok(_)) | None => Error::Reply,
    };
    let unconfirmed = replies.into_iter().map(|reply| {
        // An error says more.
        reply.and(Err(error.clone()))
    });
    unconfirmed.collect()
}
