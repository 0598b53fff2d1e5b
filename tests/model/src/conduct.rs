//! A client's reactions to replies, messages and the passing of time.

use crate::{
    call::Answer,
    client::{Client, Kind, Pending, Phase, Reply, Request, Revocation},
    time::{ALIVE, HEARTBEAT, LEASE, NEVER},
};
use std::mem;

impl Client {
    /// Returns true if it may send a request.
    pub fn is_ready(&self) -> bool {
        self.pending.is_none() && self.phase != Phase::Dead
    }

    /// Stops waiting for the answer. The request is lost, or runs late.
    pub fn give_up(&mut self, is_late: bool) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if pending.request.kind == Kind::Acquire && pending.request.deadline >= 0 {
            self.unanswered = self.unanswered.max(pending.request.deadline);
        }
        if is_late && pending.reply.is_none() {
            self.late.push(pending.request);
            self.late.sort();
        }
    }

    /// Ends like a killed process. Its sent request may still arrive.
    pub fn crash(&mut self, is_late: bool) {
        self.give_up(is_late);
        self.reset(Phase::Dead);
    }

    /// Resets the client, except for the data that late requests and the next claim need.
    fn reset(&mut self, phase: Phase) {
        let late = mem::take(&mut self.late);
        let is_sent = |at: u8| {
            late.iter()
                .any(|request| request.sends_arrival >> at & 1 == 1)
        };
        let kept = [0, 1].map(|at: u8| match is_sent(at) {
            true => self.arrivals[usize::from(at)],
            false => NEVER,
        });
        *self = Self {
            phase,
            claim: self.claim,
            arrivals: kept,
            late,
            ahead: self.ahead,
            revocation: match phase {
                Phase::Dead => Revocation::None,
                _ => self.revocation,
            },
            ..Self::default()
        };
    }

    /// An operator revokes the client's permit.
    pub fn revoked(&mut self) {
        if self.phase != Phase::Dead {
            self.revocation = Revocation::Revoked;
        }
    }

    /// Handles the reply to the pending request.
    pub fn receive(&mut self, levels: usize) {
        let Some(Pending {
            request,
            sent,
            reply: Some(reply),
        }) = self.pending.take()
        else {
            return;
        };
        match reply {
            Reply::Acquired(answer) => self.acquired(&answer, sent, levels),
            Reply::Refreshed(is_held) if self.phase == Phase::Held => match is_held {
                true => self.until = self.until.max(sent + LEASE),
                false => self.phase = Phase::Lost,
            },
            Reply::Released(true) if request.kind == Kind::Release => self.phase = Phase::Done,
            Reply::Refreshed(_) | Reply::Released(_) => {}
        }
    }

    fn acquired(&mut self, answer: &Answer, sent: i64, levels: usize) {
        match answer {
            Answer::Granted(granted) if granted.len() == levels => {
                (self.phase, self.until) = (Phase::Held, sent + LEASE);
            }
            Answer::Queued {
                level,
                arrival,
                recheck,
                last_token,
                ..
            } => {
                self.arrivals[usize::from(*level)] = *arrival;
                (self.phase, self.at, self.last_token) = (Phase::Queued, *level, *last_token);
                self.provisional = sent + ALIVE;
                self.due = sent + recheck.map_or(HEARTBEAT, |recheck| recheck.min(HEARTBEAT));
            }
            Answer::Full { .. } | Answer::QueueFull { .. } if self.phase == Phase::Lost => {}
            Answer::Full { .. } | Answer::QueueFull { .. } | Answer::Revoked { .. } => {
                self.phase = match self.unanswered {
                    NEVER => Phase::Done,
                    _ => Phase::Leaving,
                };
            }
            _ => {}
        }
    }

    /// Handles a message. A message reports one level only, so a claim with several levels has to poll.
    pub fn wake(&mut self, levels: usize) {
        if mem::take(&mut self.has_revoked_message) {
            self.phase = Phase::Leaving;
            return;
        }
        let Some((_, token)) = self.wake.take() else {
            return;
        };
        match token {
            Some(token) if token <= self.last_token => {}
            Some(_) if levels == 1 && self.provisional > 0 => {
                (self.phase, self.until) = (Phase::Held, self.provisional);
            }
            _ => self.due = 0,
        }
    }

    /// Loses a message.
    pub fn lose_wake(&mut self) {
        if !mem::take(&mut self.has_revoked_message) {
            self.wake = None;
        }
    }

    /// Returns true if it can handle a message now.
    pub fn listens(&self) -> bool {
        let has_message =
            self.has_revoked_message || self.wake.is_some() && self.phase == Phase::Queued;
        has_message && self.pending.is_none()
    }

    /// Clears everything that does not matter in its phase.
    pub fn tidy(&mut self) {
        match self.phase {
            Phase::Held if self.until <= 0 => self.phase = Phase::Lost,
            Phase::Done if self.late.is_empty() && self.revocation == Revocation::None => {
                let ahead = self.ahead;
                *self = Self {
                    ahead,
                    ..Self::default()
                };
            }
            _ => {}
        }
        if !matches!(self.phase, Phase::Queued) {
            (self.at, self.last_token, self.provisional, self.due) = (0, NEVER, 0, 0);
        }
        if !matches!(self.phase, Phase::Queued | Phase::Wanting) {
            self.wake = None;
        }
        if matches!(self.phase, Phase::Leaving | Phase::Done | Phase::Dead) {
            self.has_revoked_message = false;
        }
        if !matches!(self.phase, Phase::Held) {
            self.until = 0;
        }
        if matches!(self.phase, Phase::Done) {
            self.reset(Phase::Done);
        }
    }

    /// Moves the clocks on, or sets the server's clock back.
    pub fn pass(&mut self, ms: i64) {
        // Only the server's clock is set back.
        let own = ms.max(0);
        for time in [&mut self.provisional, &mut self.due, &mut self.until] {
            *time = (*time - own).max(0);
        }
        if self.unanswered != NEVER {
            self.unanswered -= own;
            if self.unanswered < 0 {
                self.unanswered = NEVER;
            }
        }
        if let Some(pending) = &mut self.pending {
            // Of calls this old, no reply makes anything last until now.
            pending.sent = (pending.sent - own).max(-LEASE);
            pending.request.pass(ms);
        }
        self.late.iter_mut().for_each(|request| request.pass(ms));
        if ms < 0 && self.ahead != NEVER {
            self.ahead -= ms * 1_000;
        }
    }
}

impl Request {
    /// A deadline that has passed stays passed, because the client has noted that no acquire can run.
    fn pass(&mut self, ms: i64) {
        if self.deadline >= 0 {
            self.deadline = (self.deadline - ms).max(-1);
        }
    }
}
