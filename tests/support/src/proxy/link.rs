//! The state of one proxied connection, and the fate of each of its frames.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::frame::{Frame, Reply};
use super::wire::{Hole, Wire};

/// The fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Swallow,
    /// The frame is lost, and the connection ends.
    Cut,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Arc<Wire>,
    /// True once bytes were lost in a black hole.
    has_gap: AtomicBool,
    /// The commands without a reply so far.
    unanswered: Mutex<VecDeque<Vec<Vec<u8>>>>,
}

impl Link {
    /// A new connection, without commands or a gap.
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self {
            wire,
            has_gap: AtomicBool::new(false),
            unanswered: Mutex::default(),
        }
    }

    /// Waits until the black hole is gone and this connection has lost bytes in it.
    pub(super) async fn until_healed_with_a_gap(&self) {
        let has_gap = || self.has_gap.load(Ordering::Relaxed);
        self.wire.until_no_hole_and(has_gap).await;
    }

    /// The fate of a frame from the client.
    pub(super) fn command(&self, frame: &Frame) -> Fate {
        let args = words(&frame.value);
        self.wire.record(args.clone());
        if self.wire.faults().hole == Hole::Both {
            return self.swallow();
        }
        if self.wire.cuts_before(&args) {
            return Fate::Cut;
        }
        if !is_answered_by_push(&args[0]) {
            self.unanswered().push_back(args);
        }
        Fate::Pass
    }

    /// The fate of a frame from the server.
    pub(super) fn reply(&self, frame: &Frame) -> Fate {
        let faults = self.wire.faults();
        let is_push = frame.is_push();
        let command = if is_push {
            None
        } else {
            self.unanswered().pop_front()
        };
        if faults.hole != Hole::Off {
            return self.swallow();
        }
        let is_dropped = || faults.drop_messages && is_message(&frame.value);
        if is_push && (faults.drop_pushes || is_dropped()) {
            return Fate::Swallow;
        }
        match command {
            Some(command) if self.wire.drops_reply_to(&command) => Fate::Cut,
            _ => Fate::Pass,
        }
    }

    fn swallow(&self) -> Fate {
        self.has_gap.store(true, Ordering::Relaxed);
        Fate::Swallow
    }

    fn unanswered(&self) -> std::sync::MutexGuard<'_, VecDeque<Vec<Vec<u8>>>> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn words(command: &Reply) -> Vec<Vec<u8>> {
    let words = command.array().iter();
    words.map(|word| word.bytes().to_vec()).collect()
}

/// `SUBSCRIBE` and related commands are answered once per channel, by frames in the form of pushes.
fn is_answered_by_push(name: &[u8]) -> bool {
    name.to_ascii_lowercase().ends_with(b"subscribe")
}

fn is_message(push: &Reply) -> bool {
    push.array()[0].bytes().ends_with(b"message")
}
