//! Refreshes permits, and acquires lost ones again.

use super::core::Core;
use crate::redis::{
    error::Error,
    group::{by_semaphore, pieces},
    lease::Lease,
    protocol::{Group, MAX_UNITS},
};
use futures_util::future::join_all;
use std::{sync::Arc, time::Instant};

/// Groups that are sent together. The server answers other clients between two sends, and works on
/// one send for much less than a timeout: 100,000 permits on 20,000 keys are refreshed in sends of
/// 256 groups (`benches/streams`).
const MAX_TOGETHER: usize = 256;

/// Units of the groups that are sent together, for the same reason: the server works on 10,000 units
/// for 10 ms.
pub(super) const MAX_UNITS_TOGETHER: usize = 10_000;

/// Sends in flight at a time where keys live on several nodes: more than one, so that a dead node
/// delays no refresh on the others.
const SIDE_BY_SIDE: usize = 4;

/// How many of the first groups are sent together.
pub(super) fn together(groups: &[Group]) -> usize {
    let mut units = 0;
    let fits = |group: &&Group| {
        let weights = group.permits.iter().map(|permit| permit.units() as usize);
        let before = units;
        units += weights.sum::<usize>();
        before < MAX_UNITS_TOGETHER
    };
    groups.iter().take(MAX_TOGETHER).take_while(fits).count()
}

/// Groups items by semaphore, in pieces of about [`MAX_UNITS`]. Returns the groups as a call names
/// them, and the items of each group.
pub(super) fn groups<T>(
    items: Vec<T>,
    lease: impl Fn(&T) -> &Arc<Lease> + Copy,
) -> (Vec<Group>, Vec<Vec<T>>) {
    let by_semaphore = by_semaphore(items, |item| lease(item).name());
    let grouped = by_semaphore.into_iter().flat_map(|(name, items)| {
        let pieces = pieces(items, MAX_UNITS, |item| lease(item).permit().units());
        pieces.into_iter().map(move |items| {
            let name = Arc::clone(&name);
            let permits = items.iter().map(|item| lease(item).permit()).collect();
            (Group { name, permits }, items)
        })
    });
    grouped.unzip()
}

/// Leases of groups that are sent together.
type Send = (Vec<Group>, Vec<Vec<Arc<Lease>>>);

/// The leases that a send left: lost ones, and those whose refresh was not answered.
#[derive(Default)]
struct Outcome {
    lost: Vec<Arc<Lease>>,
    failed: Vec<Arc<Lease>>,
    /// Whether the server can be reached.
    is_reached: bool,
}

/// The leases that a refresh left.
pub(super) struct Refreshed {
    /// To be acquired again.
    pub(super) lost: Vec<Arc<Lease>>,
    /// Those whose refresh was not answered, first those that were not sent.
    pub(super) failed: Vec<Arc<Lease>>,
}

/// Refreshes leases, and reports lost permits.
pub(super) async fn refresh(core: Arc<Core>, leases: Vec<Arc<Lease>>) -> Refreshed {
    let (mut lost, held): (Vec<_>, Vec<_>) = leases
        .into_iter()
        .filter(|lease| !lease.is_released())
        .partition(|lease| lease.is_outside());
    let is_silent = |lease: &Arc<Lease>| core.outage.is_silent(&lease.name());
    lost.retain(|lease| !is_silent(lease));
    let (mut unsent, held): (Vec<_>, Vec<_>) = held.into_iter().partition(is_silent);
    let side_by_side = match core.attempts.protocol.is_one_server() {
        true => 1,
        false => SIDE_BY_SIDE,
    };
    let mut unanswered = Vec::new();
    let mut sends = sends(held).into_iter();
    loop {
        let some = sends.by_ref().take(side_by_side);
        let outcomes = join_all(some.map(|send| refresh_some(&core, send))).await;
        let is_reached = outcomes.iter().any(|outcome| outcome.is_reached);
        for outcome in outcomes {
            lost.extend(outcome.lost);
            unanswered.extend(outcome.failed);
        }
        if !is_reached {
            // Each of the remaining sends would wait for a timeout.
            unsent.extend(sends.flat_map(|(_, leases)| leases).flatten());
            break;
        }
    }
    unsent.extend(unanswered);
    unsent.iter().for_each(|lease| lease.refresh_failed());
    Refreshed {
        lost,
        failed: unsent,
    }
}

/// Divides leases into sends.
fn sends(leases: Vec<Arc<Lease>>) -> Vec<Send> {
    let (groups, leases) = groups(leases, |lease| lease);
    let (mut groups, mut leases) = (groups.into_iter(), leases.into_iter());
    let mut sends = Vec::new();
    while groups.len() > 0 {
        let count = together(groups.as_slice());
        let groups = groups.by_ref().take(count).collect();
        sends.push((groups, leases.by_ref().take(count).collect()));
    }
    sends
}

/// Refreshes groups in one send.
async fn refresh_some(core: &Core, (groups, leases): Send) -> Outcome {
    let sent = Instant::now();
    let held_until = core.times.held_until(sent);
    let protocol = &core.attempts.protocol;
    let answers = protocol.refresh(&groups, sent + core.times.budget()).await;
    let mut outcome = Outcome::default();
    for ((group, leases), answer) in groups.iter().zip(leases).zip(answers) {
        // Some groups may live on a node that is dead, and others not.
        outcome.is_reached |= !answer.as_ref().is_err_and(Error::is_transient);
        let Ok(held) = answer else {
            outcome.failed.extend(leases);
            continue;
        };
        let held = group.permits.iter().zip(held.of(&group.permits));
        for (lease, (permit, is_held)) in leases.iter().zip(held) {
            match is_held {
                true => lease.refreshed(held_until),
                // Some of its units were released meanwhile.
                false if lease.permit() != *permit => outcome.failed.push(Arc::clone(lease)),
                false => lease.displaced(core.outage.kept_until(lease)),
            }
            // Displaced by this answer, or lost or degraded before it arrived.
            let lost = lease.is_outside().then(|| Arc::clone(lease));
            outcome.lost.extend(lost);
        }
    }
    outcome
}
