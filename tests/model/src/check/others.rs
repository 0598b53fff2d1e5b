//! Everything that a call must not touch.

use super::{Checked, View, is_live};
use crate::{scripts::Verb, server::violated, time::LEASE, unit::Unit};

/// **S4** A call touches only the units that it names, dead waiters, ends that have passed, and waiters that it grants.
/// An end further ahead than one lease may be moved back to one lease.
pub(super) fn untouched(view: &View<'_>) -> Checked {
    let (before, after) = (view.before, view.after);
    if view.call.verb == Verb::Refresh {
        return refreshed(view);
    }
    for (unit, end) in before.held.live() {
        if !view.call.names(unit) && !is_kept(end, after.held.get(unit)) {
            return violated("S4", format!("{unit} was not named: {before:?} {after:?}"));
        }
    }
    for (id, until) in before.alive.live() {
        let arrival = before.queue.get(id);
        if view.call.names(id) || arrival.is_none() {
            continue;
        }
        // Another check covers waiters that may have moved up.
        let is_there = match before.is_fair() {
            true => after.queue.get(id).is_some(),
            false => after.queue.get(id) == arrival,
        };
        let waits = is_there && is_kept(until, after.alive.get(id));
        if !waits && !is_held(view, id) {
            return violated("S4", format!("{id} waits no longer: {before:?} {after:?}"));
        }
    }
    released(view)
}

/// Returns true if an end has stayed, or was moved back to one lease.
fn is_kept(before: i64, after: Option<i64>) -> bool {
    after == Some(before) || before > LEASE && after == Some(LEASE)
}

fn is_held(view: &View<'_>, id: Unit) -> bool {
    id.all().all(|unit| is_live(view.after.held.get(unit)))
}

/// A refresh moves the unexpired ends of the units that it names, and changes nothing else.
fn refreshed(view: &View<'_>) -> Checked {
    let (before, after) = (view.before, view.after);
    if (&before.queue, &before.alive) != (&after.queue, &after.alive) {
        return violated(
            "S4",
            format!("a refresh changes the queue: {before:?} {after:?}"),
        );
    }
    let ends = before
        .held
        .live()
        .map(|(unit, end)| match view.call.names(unit) {
            true => (unit, LEASE),
            false => (unit, end),
        });
    let (mut expected, mut seen): (Vec<_>, Vec<_>) = (ends.collect(), after.held.live().collect());
    expected.sort();
    seen.sort();
    match expected == seen {
        true => Ok(()),
        false => violated("S4", format!("a refresh leaves {seen:?} of {before:?}")),
    }
}

/// Released units are gone from `held` and from the queue.
fn released(view: &View<'_>) -> Checked {
    if view.call.verb != Verb::Release {
        return Ok(());
    }
    let is_there =
        |unit: Unit| view.after.held.get(unit).is_some() || view.after.queue.get(unit).is_some();
    match view.items.iter().find(|item| is_there(item.unit)) {
        None => Ok(()),
        Some(item) => violated("L3", format!("{} is still there", item.unit)),
    }
}
