//! What a carrier takes with it.

use crate::redis::{
    core::{Call, CallId, Left, RuntimeId, Time},
    protocol::Command,
};
use std::{sync::Arc, time::Duration};

/// A call, and the connection that it takes.
#[derive(Debug)]
pub(super) struct Load<C> {
    pub(super) id: CallId,
    pub(super) commands: Vec<Command>,
    /// How long an answer counts.
    pub(super) left: Duration,
    pub(super) has_left: Left,
    pub(super) from: RuntimeId,
    pub(super) connection: Arc<C>,
}

impl<C> Load<C> {
    pub(super) fn new(now: Time, call: Call, (from, connection): (RuntimeId, Arc<C>)) -> Self {
        Self {
            id: call.id,
            commands: call.commands,
            left: call.deadline.saturating_sub(now),
            has_left: call.left,
            from,
            connection,
        }
    }
}
