//! Grants: their number, order and length.

use super::{Checked, View, fair, is_live};
use crate::{server::violated, time::LEASE, unit::Unit};

/// **S1** After a grant no more than `limit` units are held. If the call grants several permits, the widest limit
/// counts, because each permit was granted under its own limit.
pub(super) fn within_the_limit(view: &View<'_>) -> Checked {
    let granted = view.granted();
    let limit = granted.iter().map(|id| i64::from(id.limit)).max();
    match limit {
        Some(limit) if view.used() > limit => violated(
            "S1",
            format!("{} units: {:?}", view.used(), view.after.held),
        ),
        _ => Ok(()),
    }
}

/// **F1** No claim is granted that came after a waiter that is alive and still waits.
pub(super) fn in_their_order(view: &View<'_>) -> Checked {
    for id in view.granted() {
        let own = arrival(view, id);
        let at = position(view, id);
        let waited = view.before.queue.get(id).is_some();
        let passed = view.waiters().find(|(waiter, arrival)| {
            // A waiter that the call names later came later. So did a waiter that had left the queue as dead before the
            // call, although it may take its old position again.
            let was_there = view.before.queue.get(*waiter).is_some();
            let is_first = at.is_some() && position(view, *waiter) < at && !waited;
            (was_there || is_first) && own.is_none_or(|own| *arrival < own)
        });
        if let Some((passed, _)) = passed {
            return violated("F1", format!("{id} passes {passed}: {:?}", view.before));
        }
    }
    Ok(())
}

/// The arrival of a permit less its head start. `None` if it arrives now, after all others.
fn arrival(view: &View<'_>, id: Unit) -> Option<i64> {
    let waits = || view.item(id)?.wait;
    let rejoined = || {
        let wait = waits()?;
        match wait.arrival {
            Some(arrival) => Some(arrival - wait.head_start),
            None if wait.head_start > 0 => Some(-wait.head_start),
            None => None,
        }
    };
    // The number of waiters that a call looks at, here 0, matters only for the latest tag.
    let moved = fair::tag(view, id, 0).map(|(least, _)| least);
    moved.or_else(rejoined)
}

/// The position of a permit in the call.
fn position(view: &View<'_>, id: Unit) -> Option<usize> {
    view.items.iter().position(|item| item.unit == id)
}

/// **S5** A permit has all of its units, each once, with allowed ends. A permit that the call answers lasts one lease
/// from now. Another permit lasts until its waiter's end, at most one lease.
pub(super) fn whole_and_not_too_long(view: &View<'_>) -> Checked {
    for id in view.granted() {
        let ends: Vec<_> = id.all().map(|unit| view.after.held.get(unit)).collect();
        let is_whole = ends.windows(2).all(|pair| pair[0] == pair[1]);
        let end = ends[0].unwrap_or_default();
        let most = match (view.item(id), view.before.alive.get(id)) {
            (Some(_), _) => LEASE,
            (None, until) => until.unwrap_or_default().min(LEASE),
        };
        if !is_whole || end > most || !is_live(ends[0]) {
            return violated("S5", format!("{id} until {ends:?}, of {most}"));
        }
        if view.item(id).is_none() && end != most {
            return violated("S2", format!("{id} until {end} instead of {most}"));
        }
    }
    let is_known = |(unit, _): &(Unit, i64)| unit.number <= unit.weight;
    match view.after.held.items.iter().all(is_known) {
        true => Ok(()),
        false => violated("S5", format!("a unit too many: {:?}", view.after.held)),
    }
}
