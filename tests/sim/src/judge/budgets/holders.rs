//! The callers of claims with budgets.

use super::{
    Budgets, Claim, Duration, Event, Level, Policy, Process, Server, Time, Verdict, Who, check,
    permit_of, window,
};
use crate::subject::{LEVELS, Refusal};

/// The state of a claim, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has no answer.
    Claim,
    /// It was granted by its servers.
    Granted,
    /// It was admitted without a server.
    Admitted,
    /// It was never granted.
    Over,
}

/// A claim or a permit.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) claim: Claim,
    pub(super) asked: Time,
    pub(super) phase: Phase,
    /// The most that it has settled at each level.
    pub(super) used: [Option<u32>; LEVELS],
    /// True if it was ever lost or degraded.
    pub(super) was_lost: bool,
    /// The server at which an operator has revoked a reservation of it, and when by its clock, in ms.
    pub(super) revoked: Option<(usize, i64)>,
    /// True if its process has refused it.
    pub(super) is_refused: bool,
    /// True until its caller has given it up.
    pub(super) is_open: bool,
}

impl Holder {
    /// True if it has no answer, and its caller waits for one.
    pub(super) fn is_claim(&self) -> bool {
        self.is_open && self.phase == Phase::Claim
    }
}

impl Budgets {
    /// A caller makes a claim.
    pub(in super::super) fn asked(&mut self, who: Who, claim: Claim, local: Time) {
        let holder = Holder {
            claim,
            asked: local,
            phase: Phase::Claim,
            used: [None; LEVELS],
            was_lost: false,
            revoked: None,
            is_refused: false,
            is_open: true,
        };
        self.holders.insert(who, holder);
    }

    /// The levels of a claim.
    pub(in super::super) fn claim_of(&self, who: Who) -> Vec<Level> {
        let holder = self.holders.get(&who).into_iter();
        holder.flat_map(|holder| holder.claim.levels()).collect()
    }

    /// The claims and permits that callers have not given up.
    pub(in super::super) fn open(&self) -> Vec<Who> {
        let open = self.holders.iter().filter(|(_, holder)| holder.is_open);
        open.map(|(who, _)| *who).collect()
    }

    /// The holder of a permit has used some of a level's budget.
    pub(in super::super) fn uses(&mut self, who: Who, (level, used): (usize, u32)) {
        let holder = self.holders.get_mut(&who);
        let Some(holder) = holder.filter(|holder| holder.is_open) else {
            return;
        };
        if holder.phase != Phase::Claim {
            let total = &mut holder.used[level];
            *total = Some(total.unwrap_or(0).max(used));
        }
    }

    /// A caller has given up a claim or a permit.
    pub(in super::super) fn released(&mut self, who: Who) {
        if let Some(holder) = self.holders.get_mut(&who) {
            holder.is_open = false;
            if holder.phase == Phase::Claim {
                holder.phase = Phase::Over;
            }
        }
    }

    /// A process makes no more claims, and gives up everything.
    pub(in super::super) fn closed(&mut self, at: usize) {
        self.closed.insert(at);
    }

    /// A caller receives an event.
    pub(in super::super) fn received(
        &mut self,
        who: Who,
        event: Event,
        (process, servers): (&Process, &[Server]),
        (now, local): (Duration, Time),
    ) -> Verdict {
        let is_clean = self.is_clean;
        let Some(holder) = self.holders.get_mut(&who) else {
            return Ok(());
        };
        match event {
            Event::Granted(_, [0, ..]) => {
                holder.phase = Phase::Admitted;
                self.admitted(who, process, local)
            }
            Event::Granted(..) => {
                holder.phase = Phase::Granted;
                let claim = holder.claim;
                for level in claim.levels().filter(|_| is_clean) {
                    let server = &servers[self.settings.server_of(level.key)];
                    let clock = server.clock(now) / 1_000;
                    let held = server.view(level.key).held;
                    let own = held
                        .iter()
                        .any(|(id, ends)| *ends > clock && permit_of(id) == Some(who));
                    check(own, "the truth", || format!("{who:?} has no {level:?}"))?;
                }
                Ok(())
            }
            Event::Refused(_, why) => {
                (holder.phase, holder.is_open) = (Phase::Over, false);
                holder.is_refused = true;
                let is_right = !matches!(why, Refusal::Failed | Refusal::Revoked);
                check(is_right || !is_clean, "a refusal", || {
                    format!("{who:?} is refused: {why:?}")
                })
            }
            Event::Revoked(_) => {
                holder.is_open = false;
                Ok(())
            }
            // A process that is closed gives up its permits.
            Event::Lost(_) if self.closed.contains(&who.0) => {
                holder.is_open = false;
                Ok(())
            }
            Event::Lost(_) | Event::Degraded(_) => {
                holder.was_lost = true;
                check(!is_clean, "a loss", || format!("{who:?} is lost"))
            }
            Event::Regained(..) | Event::Released(_) | Event::GivenUp(..) => Ok(()),
        }
    }

    /// A process has admitted a claim without its server. Checks that it fits into the process's share of each budget.
    fn admitted(&mut self, who: Who, process: &Process, local: Time) -> Verdict {
        let policy = self.policies[who.0];
        check(policy != Policy::Refuse, "the share", || format!("{who:?}"))?;
        let claim: Vec<_> = self.claim_of(who);
        for level in claim.into_iter().filter(|_| policy.shares()) {
            let (Some(window), true) = (window(level.key), level.charge.is_some()) else {
                continue;
            };
            let share = match policy {
                Policy::Half => level.limit.div_ceil(2),
                _ => level.limit,
            };
            let (at, weight) = (local.as_millis() as i64, i128::from(level.weight));
            let bucket = self.buckets.entry((who.0, level.key)).or_default();
            // The time passes.
            bucket.add((0, at), (share.into(), window), 0);
            // A bucket that is full to within a ms admits a claim that is larger than the share.
            let was_full = bucket.parts <= i128::from(share);
            // 2 ms are allowed because the core's bucket counts in ns.
            let is_within = bucket.add((weight, at), (share.into(), window), 2);
            check(is_within || was_full, "the share", || {
                format!("{who:?} of {:?} by {level:?}", process.settings.process)
            })?;
        }
        Ok(())
    }
}
