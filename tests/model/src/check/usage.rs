//! **U** What an operator is shown is what there is.

use super::Checked;
use crate::{semaphore::Semaphore, server::violated, stand_in::Reply, time::NOW_MS, unit::Unit};

/// The answer lists each unit that is held, and the waiters that are alive in the order of the queue.
pub(crate) fn usage(semaphore: &Semaphore, reply: &Reply) -> Checked {
    let alive = |id: Unit| semaphore.alive.get(id).filter(|until| *until > 0);
    let queue = semaphore.queue.items.iter();
    let waiting = queue.filter_map(|(id, _)| Some((*id, alive(*id)?)));
    let now = Reply::Int(NOW_MS);
    let expected = vec![now, listed(semaphore.held.live()), listed(waiting)];
    match *reply == Reply::List(expected) {
        true => Ok(()),
        false => violated("U", format!("{reply:?} of {semaphore:?}")),
    }
}

fn listed(units: impl Iterator<Item = (Unit, i64)>) -> Reply {
    let words = units.flat_map(|(unit, end)| [unit.to_string(), (NOW_MS + end).to_string()]);
    Reply::List(words.map(Reply::Text).collect())
}
