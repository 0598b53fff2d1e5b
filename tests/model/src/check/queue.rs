//! The queue: its order, its bound, and its progress.

use super::{Checked, View, answers::by_claim, fair, is_live};
use crate::{
    call::{Answer, Item},
    messages::Wake,
    scripts::Verb,
    server::violated,
    time::ALIVE,
    unit::Unit,
};

/// **F1** A waiter keeps its position, or moves up in its flow. A new waiter comes after all others, or at the position
/// that its head start or its reported arrival gives it. Each poll is a heartbeat.
pub(super) fn has_its_order(view: &View<'_>, max_looked: usize) -> Checked {
    for (id, score) in &view.after.queue.items {
        // `None` means any score behind all other waiters, and `i64::MIN` that no score is right.
        let expected = match (view.before.queue.get(*id), view.item(*id)) {
            (Some(_), _) => {
                let tags = fair::tag(view, *id, max_looked);
                let is_there = |(least, most): &(i64, i64)| (least..=most).contains(&score);
                tags.filter(is_there).map(|_| *score).or(Some(i64::MIN))
            }
            (None, Some(item)) if view.after.is_fair() => {
                fair::starts_in_its_turn(view, item, *score)?;
                Some(*score)
            }
            (None, Some(item)) => item.wait.and_then(|wait| {
                let arrival = wait.arrival?;
                Some(arrival - wait.head_start)
            }),
            (None, None) => return violated("S4", format!("{id} was not named")),
        };
        let is_right = match expected {
            Some(expected) => *score == expected,
            None => comes_last(view, *id, *score),
        };
        if !is_right {
            return violated("F1", format!("{id} has {score}: {:?}", view.before));
        }
        let is_named = view.item(*id).is_some_and(|item| item.wait.is_some());
        if is_named && view.after.alive.get(*id) != Some(ALIVE) {
            return violated("F2", format!("{id} is not alive: {:?}", view.after.alive));
        }
    }
    Ok(())
}

/// Returns true if a new waiter has arrived after all earlier waiters. Its head start does not count.
fn comes_last(view: &View<'_>, id: Unit, score: i64) -> bool {
    let wait = view.item(id).and_then(|item| item.wait);
    let arrival = score + wait.map_or(0, |wait| wait.head_start);
    let known = view.before.last_arrival;
    let others = view.before.queue.items.iter().map(|(_, score)| *score);
    arrival >= 0 && others.chain(known).all(|other| arrival > other)
}

/// **F3** A claim joins only if fewer waiters come before it than it allows. A full queue has no dead waiters.
pub(super) fn keeps_its_bound(view: &View<'_>) -> Checked {
    let joined = view
        .items
        .iter()
        .filter(|item| view.before.queue.get(item.unit).is_none());
    for item in joined {
        let Some((wait, score)) = item.wait.zip(view.after.queue.get(item.unit)) else {
            continue;
        };
        let others = view.after.queue.items.iter();
        let before = others.filter(|(id, other)| *id != item.unit && *other <= score);
        // Later claims of the call may have joined before it with a head start.
        let before = before.filter(|(id, _)| !is_later(view, item.unit, *id));
        let (count, most) = (before.count(), usize::from(wait.max_waiting));
        if count >= most {
            return violated(
                "F3",
                format!("{count} wait before {}, of {most}", item.unit),
            );
        }
    }
    Ok(())
}

/// Returns true if the call names `other` after `id`.
fn is_later(view: &View<'_>, id: Unit, other: Unit) -> bool {
    let position = |id| view.items.iter().position(|item| item.unit == id);
    position(other).is_some_and(|other| Some(other) > position(id))
}

/// **W** After an acquire or a release the head is alive and does not fit, unless the call has reached its bound. A
/// claim does not look at the levels behind the one where it waits or is refused.
pub(super) fn moves_on(view: &View<'_>, max_advanced: usize) -> Checked {
    let Some((head, _)) = view.after.queue.items.first() else {
        return Ok(());
    };
    if view.call.verb == Verb::Refresh || !is_served(view) {
        return Ok(());
    }
    if has_dead_head(view) && has_reached_bound(view, max_advanced) {
        return Ok(());
    }
    if has_dead_head(view) {
        return violated("W", format!("{head} is dead: {:?}", view.after));
    }
    let fits = view.used() + i64::from(head.weight) <= i64::from(head.limit);
    // A call that may grant no more makes the head poll, by a message or by its answer.
    let is_its =
        |wake: &Wake| (wake.client, wake.level, wake.token) == (head.client, head.level, None);
    let polls = view.effect.wakes.iter().any(is_its) || view.item(*head).is_some();
    match fits && !(has_reached_bound(view, max_advanced) && polls) {
        true => violated(
            "W",
            format!("{head} waits beside free room: {:?}", view.after),
        ),
        false => Ok(()),
    }
}

/// Returns true if the call has acquired or released something at this semaphore, or tried to.
fn is_served(view: &View<'_>) -> bool {
    let mut claims = by_claim(view.call, view.effect);
    claims.any(|(levels, answer)| {
        let at = match answer {
            Answer::Full { level, .. } | Answer::QueueFull { level } => *level,
            Answer::Queued { level, .. } => *level,
            // A revoked claim reaches the semaphores where it had units or waited, which are free now.
            Answer::Revoked { .. } => return levels.iter().any(|item| had_something(view, item)),
            _ => u8::MAX,
        };
        let mut levels = levels.iter().take(usize::from(at) + 1);
        levels.any(|item| item.key == view.key)
    })
}

fn had_something(view: &View<'_>, item: &Item) -> bool {
    let before = view.before;
    let is_there = before.held.has_live(item.unit) || before.queue.get(item.unit).is_some();
    item.key == view.key && is_there
}

pub(super) fn has_dead_head(view: &View<'_>) -> bool {
    let head = view.after.queue.items.first();
    head.is_some_and(|(head, _)| !is_live(view.after.alive.get(*head)))
}

/// Returns true if the call has reached its bound for granted units plus removed dead waiters.
pub(super) fn has_reached_bound(view: &View<'_>, max_advanced: usize) -> bool {
    let views =
        (0..view.effect.before.len()).map(|key| View::new(view.call, view.effect, key as u8));
    views.map(|view| advanced(&view)).sum::<usize>() >= max_advanced
}

/// How many units the call has granted, plus how many dead waiters it has removed.
fn advanced(view: &View<'_>) -> usize {
    let granted = view.granted();
    let is_dead = |id: &Unit| !is_live(view.before.alive.get(*id)) && !granted.contains(id);
    let waited = view.before.queue.items.iter().map(|(id, _)| *id);
    let gone = waited.filter(|id| view.after.queue.get(*id).is_none());
    let weights = granted.iter().map(|id| usize::from(id.weight));
    weights.sum::<usize>() + gone.filter(is_dead).count()
}

/// **F4** A call notifies exactly the waiters that it grants, and the head if the head's poll can grant more. Claims of
/// the call are answered, and may be notified too.
pub(super) fn notifies(view: &View<'_>, max_advanced: usize) -> Checked {
    let granted = view.granted();
    for id in granted.iter().filter(|id| view.item(**id).is_none()) {
        let to_it = |wake: &&Wake| {
            (wake.client, wake.level) == (id.client, id.level) && wake.token.is_some()
        };
        if view.effect.wakes.iter().filter(to_it).count() != 1 {
            return violated("F4", format!("{id}: {:?}", view.effect.wakes));
        }
    }
    let keys = view.effect.before.len();
    for wake in &view.effect.wakes {
        let is_it = |unit: &Unit| (unit.client, unit.level) == (wake.client, wake.level);
        let views = (0..keys).map(|key| View::new(view.call, view.effect, key as u8));
        let mut is_due = views.map(|view| match wake.token {
            Some(_) => {
                let held = |unit: Unit| is_it(&unit) && is_live(view.after.held.get(unit));
                let waiting = view.before.queue.items.iter().map(|(unit, _)| *unit);
                let joining = view.items.iter().filter(|item| item.wait.is_some());
                waiting.chain(joining.map(|item| item.unit)).any(held)
            }
            None => {
                // A claim of the call may have joined before the notified head.
                let mut others = view.after.queue.items.iter();
                let head = others.find(|(unit, _)| view.item(*unit).is_none());
                let is_there = head.is_some_and(|(unit, _)| is_it(unit));
                let calls = view.items.iter().any(|item| is_it(&item.unit));
                (is_there || calls) && has_reached_bound(&view, max_advanced)
            }
        });
        if !is_due.any(|is_due| is_due) {
            return violated("F4", format!("{wake:?} for nothing"));
        }
    }
    Ok(())
}
