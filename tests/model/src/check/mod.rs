//! The invariants of one call: its allowed changes, and its required answers. They follow from the headers of the
//! scripts and the promises of the store, not from the code of the scripts. The first argument of `violated` is the
//! invariant's name in the table of the crate's docs.

mod answers;
mod fair;
mod grants;
mod others;
mod queue;
mod revoked;
mod storage;

use crate::{
    call::{Answer, Call, Item},
    semaphore::Semaphore,
    server::{Effect, Violation, violated},
    stand_in::{Entry, Reply, Value},
    time::{LEASE, NOW, NOW_MS},
    unit::Unit,
};

pub(crate) use self::{revoked::cleared, storage::usage};

type Checked = Result<(), Violation>;

/// Checks one call.
///
/// # Errors
///
/// Returns the first invariant that does not hold.
pub fn check(call: &Call, effect: &Effect, max_advanced: usize) -> Checked {
    storage::first_write_needs_no_memory(effect)?;
    if is_answered_late(effect) != call.is_late() {
        return violated(
            "S5",
            "a call in time is answered as late, or a late call is answered otherwise",
        );
    }
    if call.is_late() {
        return late_call_changes_nothing(effect);
    }
    for key in 0..effect.before.len() as u8 {
        let view = View::new(call, effect, key);
        storage::keys_expire(&view)?;
        if revoked::found_no_permit(&view) {
            revoked::changes_nothing(&view)?;
            continue;
        }
        revoked::removes_and_records(&view)?;
        others::untouched(&view)?;
        grants::within_the_limit(&view)?;
        grants::in_their_order(&view)?;
        grants::whole_and_not_too_long(&view)?;
        queue::has_its_order(&view, max_advanced)?;
        fair::has_its_tags(&view, max_advanced)?;
        queue::keeps_its_bound(&view)?;
        queue::moves_on(&view, max_advanced)?;
        queue::notifies(&view, max_advanced)?;
    }
    revoked::acquires_nothing(call, effect)?;
    answers::match_the_state(call, effect, max_advanced)
}

fn is_answered_late(effect: &Effect) -> bool {
    effect.answers.contains(&Answer::Late)
}

fn late_call_changes_nothing(effect: &Effect) -> Checked {
    match effect.before == effect.after && effect.wakes.is_empty() {
        true => Ok(()),
        false => violated("S5", "a call changes something after its deadline"),
    }
}

/// One semaphore before and after a call.
struct View<'a> {
    call: &'a Call,
    effect: &'a Effect,
    key: u8,
    before: &'a Semaphore,
    after: &'a Semaphore,
    /// The items of the call for this semaphore, in their order.
    items: Vec<Item>,
}

impl<'a> View<'a> {
    fn new(call: &'a Call, effect: &'a Effect, key: u8) -> Self {
        let items = call.items().filter(|item| item.key == key);
        Self {
            call,
            effect,
            key,
            before: &effect.before[key as usize],
            after: &effect.after[key as usize],
            items: items.copied().collect(),
        }
    }

    /// The permits that hold units after the call and held none before it.
    fn granted(&self) -> Vec<Unit> {
        let mut ids: Vec<_> = self.after.held.live().map(|(unit, _)| unit.id()).collect();
        ids.sort();
        ids.dedup();
        ids.retain(|id| !id.all().any(|unit| is_live(self.before.held.get(unit))));
        ids
    }

    /// The call's item for a permit that it acquires.
    fn item(&self, id: Unit) -> Option<&Item> {
        let is_it = |item: &&Item| self.call.is_acquire() && item.unit == id;
        self.items.iter().find(is_it)
    }

    /// The waiters that are alive after the call, in the order of the queue.
    fn waiters(&self) -> impl Iterator<Item = (Unit, i64)> {
        let alive = &self.after.alive;
        let queue = self.after.queue.items.iter().copied();
        queue.filter(|(id, _)| is_live(alive.get(*id)))
    }

    /// The units held after the call.
    fn used(&self) -> i64 {
        self.after.held.live().count() as i64
    }
}

/// Returns true if an end lies ahead.
fn is_live(end: Option<i64>) -> bool {
    end.is_some_and(|end| end > 0)
}

/// The tokens that a call has granted, each with its semaphore.
pub fn tokens(call: &Call, effect: &Effect) -> Vec<(u8, i64)> {
    let mut tokens = Vec::new();
    for wake in &effect.wakes {
        // Each level of a claim is for one semaphore, so client and level identify the waiter's semaphore.
        let is_its = |unit: &Unit| unit.client == wake.client && unit.level == wake.level;
        let queued_at = effect.before.iter().position(|semaphore| {
            let mut waiters = semaphore.queue.items.iter();
            waiters.any(|(unit, _)| is_its(unit))
        });
        let named = call
            .items()
            .find(|item| is_its(&item.unit))
            .map(|item| item.key);
        let key = named.or(queued_at.map(|key| key as u8));
        tokens.extend(key.zip(wake.token));
    }
    if call.is_acquire() {
        tokens.extend(answered_tokens(call, effect));
    }
    tokens
}

fn answered_tokens<'a>(call: &'a Call, effect: &'a Effect) -> impl Iterator<Item = (u8, i64)> + 'a {
    answers::by_claim(call, effect).flat_map(|(items, answer)| {
        let granted = match answer {
            Answer::Granted(granted) => &granted[..],
            _ => &[],
        };
        items
            .iter()
            .zip(granted)
            .map(|(item, (token, _))| (item.key, *token))
    })
}

/// Checks a call of the clock's script. Returns the highest time that the script answers and stores, in microseconds
/// from now.
///
/// # Errors
///
/// Returns the first invariant that does not hold.
pub fn clock(
    reply: &Reply,
    stored: Option<&Entry>,
    first_write: Option<&str>,
) -> Result<i64, Violation> {
    let Some([NOW_MS, highest]) = numbers(reply) else {
        return violated("A", format!("the clock answers {reply:?}"));
    };
    let expected = Entry {
        value: Value::Text(highest.to_string()),
        // `LEASES` in common.lua.
        expires_at: Some(NOW_MS + 8 * LEASE),
    };
    if stored != Some(&expected) {
        return violated("T", format!("the clock keeps {stored:?}"));
    }
    match first_write {
        Some("PEXPIRE") => Ok(highest - NOW),
        other => violated("M", format!("the clock first writes by {other:?}")),
    }
}

/// Reads a clock's reply: now, and the highest time.
fn numbers(reply: &Reply) -> Option<[i64; 2]> {
    match reply {
        Reply::List(items) => match items[..] {
            [Reply::Int(now), Reply::Int(highest)] => Some([now, highest]),
            _ => None,
        },
        _ => None,
    }
}
