//! A fair queue: start tags of waiters, and finish tags of flows. A waiter moves up when others of its flow, before it,
//! leave without a grant. `max_looked` is how many waiters a call looks at to move them up.

use super::{Checked, View};
use crate::{call::Item, server::violated, unit::Unit};

/// How far a tag may be from the expected one, because other waiters have the tags in between. More than the waiters of
/// any scenario.
const TAKEN: i64 = 8;

/// **F5** A claim that joins a fair queue starts when its flow finishes, or at the virtual time, whichever is later. It
/// takes the first tag from there on that no waiter has.
pub(super) fn starts_in_its_turn(view: &View<'_>, item: &Item, start: i64) -> Checked {
    let (least, most) = starts(view, item);
    // Other claims of the call have changed the state that this claim found.
    let is_right = least <= start && (start <= most || !is_simple(view));
    match is_right {
        true => Ok(()),
        false => violated(
            "F5",
            format!(
                "{} starts at {start}, not {least} to {most}: {:?} {:?}",
                item.unit, view.before, view.after
            ),
        ),
    }
}

/// The latest start that a claim may have found.
pub(super) fn latest(view: &View<'_>, item: &Item) -> i64 {
    starts(view, item).1
}

/// Returns true if the call names one unit only, and for this semaphore.
fn is_simple(view: &View<'_>) -> bool {
    view.items.len() == 1 && view.call.groups.len() == 1
}

/// The claims that waited before the call and wait after it, without this one.
fn others<'a>(view: &'a View<'_>, own: Unit) -> impl Iterator<Item = (Unit, i64)> + Clone + 'a {
    let waiting = view.after.queue.items.iter().copied();
    waiting.filter(move |(id, _)| *id != own && view.before.queue.get(*id).is_some())
}

/// The earliest and the latest start of a claim. They differ because dead waiters may be removed before the claim joins
/// or after it.
fn starts(view: &View<'_>, item: &Item) -> (i64, i64) {
    let others = others(view, item.unit);
    let mut scores = others.clone().map(|(_, score)| score);
    let head = scores.next();
    let was_fair = view.before.is_fair() && head.is_some();
    let time = match was_fair {
        true => view.before.last_arrival.max(head),
        // With -1 the first free tag is 0, the present time.
        false => others.clone().map(|(_, score)| score).max().or(Some(-1)),
    };
    // A queue that becomes fair goes on from its last arrival.
    let arrival = view.before.last_arrival.filter(|_| head.is_some());
    let time = time.max(arrival).unwrap_or(-1);
    let time = if was_fair { time } else { time.max(-1) };
    let (least, most) = match was_fair {
        true => finishes(view, item.unit.flow),
        false => (i64::MIN, i64::MIN),
    };
    let free = |finish: i64| {
        let mut start = finish.max(time + 1);
        while others.clone().any(|(_, score)| score == start) {
            start += 1;
        }
        start
    };
    (free(least), free(most))
}

/// The earliest and the latest finish of a flow: without the waiters that have left, and with them.
fn finishes(view: &View<'_>, flow: u8) -> (i64, i64) {
    let Some(finish) = view.before.finish(flow) else {
        return (i64::MIN, i64::MIN);
    };
    let (_, slot) = moved(view, flow);
    (slot.unwrap_or(finish).min(finish), finish)
}

/// The waiters of a flow that have left without a grant.
fn departed(view: &View<'_>, flow: u8) -> Vec<Unit> {
    let granted = view.granted();
    let waited = view.before.queue.items.iter().map(|(id, _)| *id);
    let gone = waited.filter(|id| {
        id.flow == flow && view.after.queue.get(*id).is_none() && !granted.contains(id)
    });
    gone.collect()
}

/// The new tags of a flow's remaining waiters, and the flow's finish if a waiter has left. From the first gap on, each
/// waiter moves to the finish of the waiter before it, but not before the virtual time.
fn moved(view: &View<'_>, flow: u8) -> (Vec<(Unit, i64)>, Option<i64>) {
    let gone = departed(view, flow);
    let time = view.before.last_arrival.unwrap_or(i64::MIN);
    // `slot` is the tag to which the next waiter moves, once a waiter has left.
    let (mut moved, mut slot) = (Vec::new(), None);
    let own = view.before.queue.items.iter();
    for (id, score) in own.filter(|(id, _)| id.flow == flow) {
        if gone.contains(id) {
            slot = slot.or(Some(time.max(*score)));
            continue;
        }
        let tag = slot.map_or(*score, |slot| slot.min(*score));
        // Claims that came before the first flow do not take turns.
        slot = slot.map(|slot| if tag < time { slot } else { tag + id.cost() });
        moved.push((*id, tag));
    }
    (moved, slot)
}

/// The earliest and the latest tag of a waiter that may have moved because others of its flow have left.
pub(super) fn tag(view: &View<'_>, id: Unit, max_looked: usize) -> Option<(i64, i64)> {
    let score = view.before.queue.get(id)?;
    if !view.before.is_fair() {
        return Some((score, score));
    }
    let (moved, slot) = moved(view, id.flow);
    let own = moved.into_iter().find(|(other, _)| *other == id);
    let least = own.map_or(score, |(_, tag)| tag);
    let most = match slot {
        Some(_) if !has_looked(view, max_looked) => score,
        Some(_) => score.min(least + TAKEN),
        None => score,
    };
    Some((least, most))
}

/// Returns true if the call has looked at all waiters behind those that left.
fn has_looked(view: &View<'_>, max_looked: usize) -> bool {
    let flows = view.before.finishes.iter().map(|(flow, _)| *flow);
    let gone: usize = flows.map(|flow| departed(view, flow).len()).sum();
    gone * view.before.queue.items.len() < max_looked
}

/// **F5** No two waiters share a tag, and `alive` has exactly the tags that it needs.
pub(super) fn has_its_tags(view: &View<'_>, max_looked: usize) -> Checked {
    let after = view.after;
    if !after.is_fair() {
        let is_fair = after.queue.items.iter().any(|(id, _)| id.flow > 0);
        return match is_fair {
            true => violated("F5", format!("a flow waits without a tag: {after:?}")),
            false => Ok(()),
        };
    }
    if after.queue.items.is_empty() {
        return violated("T", format!("tags outlive the queue: {after:?}"));
    }
    let scores: Vec<_> = after.queue.items.iter().map(|(_, score)| *score).collect();
    let are_distinct = |pair: &[i64]| pair[0] < pair[1];
    if !scores.windows(2).all(are_distinct) || after.finish(0).is_none() {
        return violated(
            "F5",
            format!("two waiters share a tag, or a tag is missing: {after:?}"),
        );
    }
    let joined = |(id, _): &&(Unit, i64)| view.before.queue.get(*id).is_none();
    let joined = after.queue.items.iter().find(joined);
    let time = after.last_arrival.unwrap_or(i64::MAX);
    let is_past = |(flow, finish): &(u8, i64)| *finish <= time && *flow > 0;
    if joined.is_some() && after.finishes.iter().any(is_past) {
        return violated("T", format!("an unneeded tag is kept: {after:?}"));
    }
    match is_simple(view) || joined.is_none() {
        true => flows_finish_in_time(view, joined, max_looked),
        false => Ok(()),
    }
}

/// A flow finishes when its last waiter does, unless that waiter has left.
fn flows_finish_in_time(
    view: &View<'_>,
    joined: Option<&(Unit, i64)>,
    max_looked: usize,
) -> Checked {
    let (before, after) = (view.before, view.after);
    for (flow, finish) in &after.finishes {
        let own = joined.filter(|(id, _)| id.flow == *flow);
        let (least, most) = match own {
            Some((id, start)) => (start + id.cost(), start + id.cost()),
            // Behind an empty queue the finish starts again.
            None if joined.is_some_and(|(id, _)| others(view, *id).next().is_none()) => {
                let time = after.last_arrival.filter(|_| *flow == 0);
                (time.unwrap_or(i64::MAX), time.unwrap_or(i64::MIN))
            }
            None if joined.is_some() && *flow == 0 => {
                let time = after.last_arrival.unwrap_or_default();
                let (least, most) = finishes(view, 0);
                (least.max(time), most.max(time))
            }
            // Without a join, only a waiter of the flow that leaves can move the finish back.
            None if departed(view, *flow).len() == 1 && has_looked(view, max_looked) => {
                let (least, most) = finishes(view, *flow);
                (least, most.min(least + TAKEN))
            }
            None => finishes(view, *flow),
        };
        if !(least..=most).contains(finish) {
            return violated(
                "F5",
                format!("{flow} finishes at {finish}, not {least} to {most}: {before:?} {after:?}"),
            );
        }
    }
    Ok(())
}
