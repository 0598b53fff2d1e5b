//! **A** Answers describe the state of the server.

use super::{
    Checked, View, fair, is_live,
    queue::{has_dead_head, has_reached_bound},
    revoked,
};
use crate::{
    call::{Answer, Call, Item},
    scripts::Verb,
    server::{Effect, violated},
    time::{ALIVE, LEASE},
    unit::Unit,
};

/// The items of each claim, and its answer.
pub(super) fn by_claim<'a>(
    call: &'a Call,
    effect: &'a Effect,
) -> impl Iterator<Item = (&'a [Item], &'a Answer)> {
    let claims = call
        .groups
        .iter()
        .flat_map(move |group| claims(call, group));
    claims.zip(&effect.answers)
}

/// The claims in a group: the whole group of an acquire, each item of another call.
fn claims<'a>(call: &Call, group: &'a [Item]) -> impl Iterator<Item = &'a [Item]> + use<'a> {
    let size = match call.verb {
        Verb::Acquire => usize::MAX,
        _ => 1,
    };
    group.chunks(size)
}

/// Returns true if no later claim of the call names the same semaphores, so that the state after the call matches the
/// answer to this claim.
fn is_final(call: &Call, items: &[Item]) -> bool {
    let all = call.groups.iter().flat_map(|group| claims(call, group));
    let later = all.skip_while(|other| *other != items).skip(1).flatten();
    let shares_key = |other: &Item| items.iter().any(|item| item.key == other.key);
    !later.into_iter().any(shares_key)
}

pub(super) fn match_the_state(call: &Call, effect: &Effect, max_advanced: usize) -> Checked {
    for (items, answer) in by_claim(call, effect) {
        let is_final = is_final(call, items);
        let views: Vec<_> = items
            .iter()
            .map(|item| (*item, View::new(call, effect, item.key)))
            .collect();
        let is_true = match answer {
            Answer::Is(is_held) => is_unit(call, &views, *is_held),
            Answer::Granted(levels) => is_granted(&views, levels, is_final),
            Answer::Full { level, held } => is_full(&views, *level, *held, is_final),
            Answer::QueueFull { level } => is_queue_full(&views, *level, is_final),
            Answer::Queued { .. } => is_queued(&views, answer, is_final, max_advanced),
            Answer::Revoked { level } => is_revoked(&views, *level, is_final),
            Answer::Late | Answer::Unknown => true,
        };
        if !is_true {
            let (before, after) = (&effect.before, &effect.after);
            return violated(
                "A",
                format!("{answer:?} to {items:?}: {before:?} {after:?}"),
            );
        }
    }
    Ok(())
}

/// The items of a claim, each with the view of its semaphore.
type Views<'a> = [(Item, View<'a>)];

fn is_unit(call: &Call, views: &Views<'_>, is_held: bool) -> bool {
    views.iter().all(|(item, view)| {
        let is_there = match call.verb {
            Verb::Refresh => view.after.held.has_live(item.unit),
            Verb::Revoke => revoked::is_there(view, item.unit),
            _ => view.before.held.has_live(item.unit),
        };
        is_there == is_held
    })
}

/// The permit was revoked at that level, and it has nothing left at any level.
fn is_revoked(views: &Views<'_>, level: u8, is_final: bool) -> bool {
    let Some((item, view)) = views.get(usize::from(level)) else {
        return false;
    };
    let mut known = view.before.revoked.iter();
    let is_known = known.any(|(permit, _)| item.unit.permit() == *permit) && item.was_sent;
    let mut all = views.iter();
    is_known && (!is_final || all.all(|(item, view)| has_nothing(view, item.unit)))
}

/// Returns true if all units are held until this end.
fn is_held_until(view: &View<'_>, id: Unit, end: i64) -> bool {
    id.all().all(|unit| view.after.held.get(unit) == Some(end))
}

/// Returns true if the permit neither holds units nor waits here.
fn is_gone(view: &View<'_>, id: Unit) -> bool {
    let waits = view.after.queue.get(id).is_some() || view.after.alive.get(id).is_some();
    let mut units = id.all();
    !waits && !units.any(|unit| view.after.held.get(unit).is_some())
}

/// Returns true if a refused claim has nothing left here. If the first unit of the permit was released before, its
/// other units may still be held, because they are released later.
fn has_nothing(view: &View<'_>, id: Unit) -> bool {
    let was_held = is_live(view.before.held.get(id));
    let (before, after) = (&view.before.held, &view.after.held);
    let mut others = id.all().skip(1);
    let is_left = others.all(|unit| before.get(unit) == after.get(unit));
    let waits = view.after.queue.get(id).is_some() || view.after.alive.get(id).is_some();
    is_gone(view, id) || !was_held && !waits && after.get(id).is_none() && is_left
}

/// All units are held until the end of a lease. Units that were released before stay free, however late or often the
/// permit is acquired.
fn is_whole(view: &View<'_>, id: Unit) -> bool {
    let was_held = is_live(view.before.held.get(id));
    id.all().all(|unit| {
        let is_wanted = !was_held || is_live(view.before.held.get(unit));
        view.after.held.get(unit) == is_wanted.then_some(LEASE)
    })
}

/// The waiters before the call, and those after it, with their scores.
fn queued(view: &View<'_>) -> impl Iterator<Item = (Unit, i64)> {
    let queues = [view.before, view.after].map(|semaphore| semaphore.queue.items.iter().copied());
    queues.into_iter().flatten()
}

/// The claim is granted at every level for one lease, under the last token, and no longer waits in any queue.
fn is_granted(views: &Views<'_>, levels: &[(i64, i64)], is_final: bool) -> bool {
    let is_level = |((item, view), (token, used)): (&(Item, View<'_>), &(i64, i64))| {
        let last = view.after.token.map(|(token, _)| token);
        let is_last = last == Some(*token) && *used == view.used();
        let waits = view.after.queue.get(item.unit).is_some();
        is_whole(view, item.unit) && !waits && (is_last || !is_final)
    };
    views.len() == levels.len() && views.iter().zip(levels).all(is_level)
}

/// Nothing is left at any level, and the claim did not fit or another claim waits.
fn is_full(views: &Views<'_>, level: u8, held: i64, is_final: bool) -> bool {
    let Some((item, view)) = views.get(usize::from(level)) else {
        return false;
    };
    let (weight, limit) = (i64::from(item.unit.weight), i64::from(item.unit.limit));
    let waited = queued(view).any(|(id, _)| id != item.unit);
    let is_right = held + weight > limit || waited;
    let is_gone = views
        .iter()
        .all(|(item, view)| has_nothing(view, item.unit));
    item.wait.is_none() && (!is_final || is_gone && is_right)
}

/// The highest score that a claim may join with: its arrival less its head start.
fn highest_score(item: &Item, view: &View<'_>) -> i64 {
    let Some(wait) = item.wait else {
        return i64::MIN;
    };
    if view.before.is_fair() || item.unit.flow > 0 {
        return fair::latest(view, item);
    }
    let marks = [view.before.last_arrival, view.after.last_arrival];
    let scores = queued(view).map(|(_, score)| score);
    let last = scores.chain(marks.into_iter().flatten()).max();
    let new = last.map_or(0, |last| last + 1).max(0);
    wait.arrival.unwrap_or(new) - wait.head_start
}

/// Nothing is left at any level, and the live claims before it fill the queue up to its bound.
fn is_queue_full(views: &Views<'_>, level: u8, is_final: bool) -> bool {
    let Some((item, view)) = views.get(usize::from(level)) else {
        return false;
    };
    let most = item.wait.map_or(u8::MAX, |wait| wait.max_waiting);
    let score = highest_score(item, view);
    let before = view.waiters().filter(|(_, other)| *other <= score);
    let is_full = before.count() >= usize::from(most);
    let is_gone = views
        .iter()
        .all(|(item, view)| has_nothing(view, item.unit));
    !is_final || is_gone && is_full
}

/// The claim waits in one queue, holds the narrower levels, and has nothing at the wider ones.
fn is_queued(views: &Views<'_>, answer: &Answer, is_final: bool, max_advanced: usize) -> bool {
    let Answer::Queued {
        level,
        arrival,
        recheck,
        last_token,
        ..
    } = answer
    else {
        return false;
    };
    let at = usize::from(*level);
    let Some((item, view)) = views.get(at) else {
        return false;
    };
    let mut narrower = views[..at].iter();
    let mut wider = views[at + 1..].iter();
    let is_only_here = narrower.all(|(item, view)| is_held_until(view, item.unit, ALIVE))
        && wider.all(|(item, view)| is_gone(view, item.unit));
    let last = view.after.token.map_or(-1, |(token, _)| token);
    let is_placed = has_its_position(item, view, (*arrival, *recheck), max_advanced);
    !is_final || is_only_here && is_placed && *last_token == last
}

/// The claim is at its position, and polls again in time. The head's answer has the time until the first lease ends, or
/// 0 if the call has reached its bound, so that the head polls at once. The same holds for all waiters behind a dead
/// head.
fn has_its_position(
    item: &Item,
    view: &View<'_>,
    (arrival, recheck): (i64, Option<i64>),
    max_advanced: usize,
) -> bool {
    let head = view.after.queue.items.first().map(|(id, _)| *id);
    let first = view.after.held.live().map(|(_, end)| end).min();
    let is_due = match has_reached_bound(view, max_advanced) {
        true => recheck == Some(0),
        false => recheck == Some(first.unwrap_or_default()),
    };
    let head_start = item.wait.map_or(0, |wait| wait.head_start);
    match view.after.queue.get(item.unit) {
        Some(score) if score + head_start != arrival => false,
        Some(_) if head == Some(item.unit) || has_dead_head(view) => is_due,
        Some(_) => recheck.is_none(),
        // A later claim of the call has granted it this level, and it polls at once for the next level.
        None => is_held_until(view, item.unit, LEASE) && recheck == Some(0),
    }
}
