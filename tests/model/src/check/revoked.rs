//! **R** A permit that an operator revokes is over.

use super::{Checked, View, answers::by_claim, is_live};
use crate::{
    call::{Answer, Call, Item},
    scripts::Verb,
    semaphore::Semaphore,
    server::{Effect, violated},
    time::REMEMBER,
    unit::{Permit, Unit},
};

/// Returns true if the call is a revocation whose id names no permit.
pub(super) fn found_no_permit(view: &View<'_>) -> bool {
    view.call.verb == Verb::Revoke && view.effect.answers == [Answer::Is(false)]
}

/// A revocation of a missing permit changes nothing and sends no message.
pub(super) fn changes_nothing(view: &View<'_>) -> Checked {
    let named = view.items.iter().map(|item| item.unit);
    let is_there = named.into_iter().any(|unit| is_there(view, unit));
    let has_sent = !view.effect.wakes.is_empty() || !view.effect.revoked.is_empty();
    match is_there || has_sent || cleared(view.before) != cleared(view.after) {
        true => violated(
            "R",
            format!("nothing to revoke: {:?} {:?}", view.before, view.after),
        ),
        false => Ok(()),
    }
}

/// The semaphore without leases that have ended.
pub(crate) fn cleared(semaphore: &Semaphore) -> Semaphore {
    let mut next = semaphore.clone();
    next.held.items.retain(|(_, end)| *end > 0);
    if next.held.items.is_empty() {
        next.held.ttl = 0;
    }
    next
}

/// Returns true if a permit was held or waited before the call.
pub(super) fn is_there(view: &View<'_>, id: Unit) -> bool {
    let mut units = id.all();
    let is_held = units.any(|unit| view.before.held.has_live(unit));
    is_held || view.before.queue.get(id).is_some()
}

/// A revoked permit is gone, its revocation is stored for its time, and its owner is notified. No call removes the
/// revocation earlier.
pub(super) fn removes_and_records(view: &View<'_>) -> Checked {
    let (before, after) = (view.before, view.after);
    let is_here = view.call.verb == Verb::Revoke && !view.items.is_empty();
    let named = view.items.iter().filter(|_| is_here);
    let taken: Vec<_> = named.map(|item| item.unit).collect();
    let mut expected: Vec<(Permit, i64)> = before.revoked.clone();
    expected.retain(|(permit, until)| {
        let is_over = is_here && *until <= 0;
        !is_over && taken.iter().all(|unit| unit.permit() != *permit)
    });
    expected.extend(taken.iter().map(|unit| (unit.permit(), REMEMBER)));
    expected.sort_unstable();
    if after.revoked != expected {
        return violated("R", format!("{expected:?} is not stored: {after:?}"));
    }
    if let Some(unit) = taken.iter().find(|unit| is_left(after, **unit)) {
        return violated("R", format!("{unit} is still there: {after:?}"));
    }
    let notified = &view.effect.revoked;
    let owners: Vec<_> = taken.iter().map(|unit| unit.permit()).collect();
    match *notified == owners || view.items.is_empty() {
        true => Ok(()),
        false => violated("R", format!("{notified:?} are notified, not {owners:?}")),
    }
}

fn is_left(after: &Semaphore, id: Unit) -> bool {
    let waits = after.queue.get(id).is_some() || after.alive.get(id).is_some();
    waits || id.all().any(|unit| after.held.get(unit).is_some())
}

/// Every acquire of a revoked permit, or of units added to it, is refused as revoked. Only the first acquire of a
/// permit may run without this check, because nothing can have been revoked when it is sent.
pub(super) fn acquires_nothing(call: &Call, effect: &Effect) -> Checked {
    if !call.is_acquire() {
        return Ok(());
    }
    let is_over = |item: &Item| {
        let mut revoked = effect.before[usize::from(item.key)].revoked.iter();
        let is_it = |(permit, until): &(Permit, i64)| {
            *permit == item.unit.permit() && is_live(Some(*until))
        };
        item.was_sent && revoked.any(is_it)
    };
    for (items, answer) in by_claim(call, effect) {
        if items.iter().any(is_over) && !matches!(answer, Answer::Revoked { .. }) {
            return violated("R", format!("{answer:?} to {items:?}, which was revoked"));
        }
    }
    Ok(())
}
