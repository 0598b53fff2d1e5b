//! Refreshing, and bringing lost permits back.

use super::core::Core;
use crate::redis::{
    dispatch::Claim,
    group::{by_semaphore, pieces},
    lease::Lease,
    protocol::{Group, MAX_ARGS},
};
use std::{sync::Arc, time::Instant};

/// Groups that are sent together. The server answers other clients between two of these, and is
/// done with one well within a timeout: 100,000 permits on 20,000 keys are refreshed in turns of
/// as many (`cargo bench --bench streams`).
pub(super) const MAX_TOGETHER: usize = 256;

/// Permits of one semaphore, and how a call names them.
pub(super) fn groups<T>(
    items: Vec<T>,
    lease: impl Fn(&T) -> &Arc<Lease> + Copy,
) -> (Vec<Group>, Vec<Vec<T>>) {
    let by_semaphore = by_semaphore(items, |item| lease(item).name());
    let grouped = by_semaphore.into_iter().flat_map(|(name, items)| {
        let pieces = pieces(items, MAX_ARGS, |item| lease(item).permit.weight);
        pieces.into_iter().map(move |items| {
            let name = Arc::clone(&name);
            let permits = items.iter().map(|item| lease(item).permit).collect();
            (Group { name, permits }, items)
        })
    });
    grouped.unzip()
}

/// Refreshes these, tells the holders of those that are lost, and tries to bring them back.
/// Returns those that were not answered.
pub(super) async fn refresh(core: Arc<Core>, leases: Vec<Arc<Lease>>) -> Vec<Arc<Lease>> {
    let (mut lost, held): (Vec<_>, Vec<_>) = leases
        .into_iter()
        .filter(|lease| !lease.is_released())
        .partition(|lease| lease.is_lost());
    let mut failed = Vec::new();
    let (groups, leases) = groups(held, |lease| lease);
    for (groups, leases) in groups.chunks(MAX_TOGETHER).zip(leases.chunks(MAX_TOGETHER)) {
        // When one has no answer, those after it would wait for a timeout each.
        match failed.is_empty() {
            true => refresh_some(&core, groups, leases, &mut failed, &mut lost).await,
            false => failed.extend(leases.iter().flatten().cloned()),
        }
    }
    failed.iter().for_each(|lease| lease.refresh_failed());
    bring_back(&core, lost).await;
    failed
}

async fn refresh_some(
    core: &Core,
    groups: &[Group],
    leases: &[Vec<Arc<Lease>>],
    failed: &mut Vec<Arc<Lease>>,
    lost: &mut Vec<Arc<Lease>>,
) {
    let sent = Instant::now();
    let held_until = core.times.held_until(sent);
    let protocol = &core.attempts.protocol;
    let answers = protocol.refresh(groups, sent + core.times.timeout).await;
    for ((group, leases), answer) in groups.iter().zip(leases).zip(answers) {
        let Ok(held) = answer else {
            failed.extend(leases.iter().cloned());
            continue;
        };
        for (lease, is_held) in leases.iter().zip(held.of(&group.permits)) {
            match is_held {
                true => lease.refreshed(held_until),
                false => lease.displaced(),
            }
            // Lost by now, or told so while the answer was on its way.
            lost.extend(lease.is_lost().then(|| Arc::clone(lease)));
        }
    }
}

/// Claims again what was lost, as any newcomer would. What has no answer is claimed again at the
/// next refresh: only the answer to an acquire tells the token.
async fn bring_back(core: &Core, lost: Vec<Arc<Lease>>) {
    for lost in lost.chunks(MAX_TOGETHER) {
        let deadline = Instant::now() + core.times.timeout;
        let claims: Vec<_> = lost
            .iter()
            .map(|lease| Claim {
                lease: Arc::clone(lease),
                position: None,
                deadline,
            })
            .collect();
        core.attempts
            .attempt(&claims.iter().collect::<Vec<_>>())
            .await;
    }
}
