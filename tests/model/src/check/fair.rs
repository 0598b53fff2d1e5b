//! A fair queue: start tags of waiters, and finish tags of flows.

use super::{Checked, View};
use crate::{call::Item, server::violated, unit::Unit};

/// **F5** A claim that joins a fair queue starts when its flow finishes, or at the virtual time, whichever is later, and at
/// the first tag from there on that no waiter has.
pub(super) fn starts_in_its_turn(view: &View<'_>, item: &Item, start: i64) -> Checked {
    let is_right = match is_simple(view) {
        true => starts(view, item).contains(&start),
        // Other claims of the call have changed what it has found.
        false => start >= starts(view, item).into_iter().min().unwrap_or(start),
    };
    match is_right {
        true => Ok(()),
        false => violated(
            "F5",
            format!(
                "{} starts at {start}, not {:?}: {:?} {:?}",
                item.unit,
                starts(view, item),
                view.before,
                view.after
            ),
        ),
    }
}

/// The latest start that a claim may have found.
pub(super) fn latest(view: &View<'_>, item: &Item) -> i64 {
    let starts = starts(view, item).into_iter().max();
    starts.unwrap_or_default()
}

/// Whether the call names one unit here.
fn is_simple(view: &View<'_>) -> bool {
    view.items.len() == 1 && view.call.shares.len() == 1
}

/// Those that waited before the call and wait after it, without this one.
fn others<'a>(view: &'a View<'_>, own: Unit) -> impl Iterator<Item = (Unit, i64)> + Clone + 'a {
    let waiting = view.after.queue.items.iter().copied();
    waiting.filter(move |(id, _)| *id != own && view.before.queue.get(*id).is_some())
}

/// Where a claim may start: the dead may be removed before it, after it, or each in its turn.
fn starts(view: &View<'_>, item: &Item) -> Vec<i64> {
    let others = others(view, item.unit);
    let mut scores = others.clone().map(|(_, score)| score);
    let head = scores.next();
    let was_fair = view.before.is_fair() && head.is_some();
    let time = match was_fair {
        true => view.before.last_arrival.max(head),
        false => others.clone().map(|(_, score)| score).max().or(Some(-1)),
    };
    // A queue that becomes fair goes on from its last arrival.
    let arrival = view.before.last_arrival.filter(|_| head.is_some());
    let time = time.max(arrival).unwrap_or(-1);
    let time = if was_fair { time } else { time.max(-1) };
    let finishes = match was_fair {
        true => finishes(view, item.unit.flow),
        false => vec![i64::MIN],
    };
    let starts = finishes.into_iter().map(|finish| {
        let mut start = finish.max(time + 1);
        while others.clone().any(|(_, score)| score == start) {
            start += 1;
        }
        start
    });
    starts.collect()
}

/// What the finish of a flow may be when those of it that leave have left, and before.
fn finishes(view: &View<'_>, flow: u8) -> Vec<i64> {
    let Some(finish) = view.before.finish(flow) else {
        return vec![i64::MIN];
    };
    let granted = view.granted();
    let gone = view.before.queue.items.iter().filter(|(id, _)| {
        id.flow == flow && view.after.queue.get(*id).is_none() && !granted.contains(id)
    });
    let back = |finish: i64, (id, start): &(Unit, i64)| match finish == start + id.cost() {
        true => *start,
        false => finish,
    };
    let last_first = gone.clone().rev().fold(finish, back);
    let first_first = gone.fold(finish, back);
    vec![finish, last_first, first_first]
}

/// **F5** No two waiters have one tag, and `alive` has the tags that it should.
pub(super) fn has_its_tags(view: &View<'_>) -> Checked {
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
    let has_one = |pair: &[i64]| pair[0] < pair[1];
    if !scores.windows(2).all(has_one) || after.finish(0).is_none() {
        return violated(
            "F5",
            format!("two have one tag, or one is missing: {after:?}"),
        );
    }
    let joined = |(id, _): &&(Unit, i64)| view.before.queue.get(*id).is_none();
    let joined = after.queue.items.iter().find(joined);
    let time = after.last_arrival.unwrap_or(i64::MAX);
    let is_past = |(flow, finish): &(u8, i64)| *finish <= time && *flow > 0;
    if joined.is_some() && after.finishes.iter().any(is_past) {
        return violated("T", format!("a tag is kept that nobody needs: {after:?}"));
    }
    match is_simple(view) || joined.is_none() {
        true => finish_rightly(view, joined),
        false => Ok(()),
    }
}

/// Each flow finishes when its last waiter does, as long as that has not left.
fn finish_rightly(view: &View<'_>, joined: Option<&(Unit, i64)>) -> Checked {
    let (before, after) = (view.before, view.after);
    for (flow, finish) in &after.finishes {
        let own = joined.filter(|(id, _)| id.flow == *flow);
        let expected = match own {
            Some((id, start)) => vec![start + id.cost()],
            // It begins anew behind an empty queue.
            None if joined.is_some_and(|(id, _)| others(view, *id).next().is_none()) => after
                .last_arrival
                .filter(|_| *flow == 0)
                .into_iter()
                .collect(),
            None if joined.is_some() && *flow == 0 => {
                let time = after.last_arrival.unwrap_or_default();
                finishes(view, 0)
                    .into_iter()
                    .map(|own| own.max(time))
                    .collect()
            }
            // Without a join nothing but its own leaving moves it back.
            None if gone_alone(view, *flow) => finishes(view, *flow)[1..].to_vec(),
            None => finishes(view, *flow),
        };
        if !expected.contains(finish) {
            return violated(
                "F5",
                format!("{flow} finishes at {finish}, not {expected:?}: {before:?} {after:?}"),
            );
        }
    }
    Ok(())
}

/// Whether the call has removed one waiter of a flow, and granted it nothing.
fn gone_alone(view: &View<'_>, flow: u8) -> bool {
    let granted = view.granted();
    let gone = view.before.queue.items.iter().filter(|(id, _)| {
        id.flow == flow && view.after.queue.get(*id).is_none() && !granted.contains(id)
    });
    gone.count() == 1
}
