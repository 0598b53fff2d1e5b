//! Stored keys, how long they last, and the usage that operators see.

use super::{Checked, View};
use crate::{
    semaphore::{FOREVER, Units},
    server::{Effect, violated},
    stand_in::{Reply, StandIn, Value},
    time::NOW_MS,
};

/// **M** A server whose memory is full accepts a script only if its first write needs no memory.
pub(super) fn first_write_needs_no_memory(effect: &Effect) -> Checked {
    match effect.first_write.as_deref() {
        None | Some("ZREM" | "ZREMRANGEBYSCORE" | "DEL" | "PEXPIRE") => Ok(()),
        Some(other) => violated("M", format!("the first write is {other}")),
    }
}

/// **T** Every key expires, and none expires before its contents have ended.
pub(super) fn keys_expire(view: &View<'_>) -> Checked {
    let after = view.after;
    let last = |units: &Units| units.items.iter().map(|(_, end)| *end).max();
    let alive = last(&after.alive);
    let revoked = after.revoked.iter().map(|(_, until)| *until).max();
    let lists = [
        ("held", &after.held, last(&after.held)),
        ("queue", &after.queue, alive),
        ("alive", &after.alive, alive.max(revoked)),
    ];
    for (name, units, last) in lists {
        let is_there = units.ttl > 0;
        if is_there && (units.ttl >= FOREVER || last.is_some_and(|last| units.ttl < last)) {
            return violated(
                "T",
                format!("{name} expires after {} ms: {units:?}", units.ttl),
            );
        }
    }
    if after.token.is_some_and(|(_, ttl)| ttl >= FOREVER) {
        return violated("T", "the token never expires");
    }
    // `alive` keeps nothing that no waiter needs.
    let is_waiting = |(id, _): &(_, i64)| after.queue.get(*id).is_some();
    let is_kept = after.last_arrival.is_some() && after.queue.items.is_empty();
    match after.alive.items.iter().all(is_waiting) && !is_kept {
        true => Ok(()),
        false => violated(
            "T",
            format!("alive has a member that does not wait: {after:?}"),
        ),
    }
}

/// **U** The usage that an operator sees matches the server: each held unit with its end, and each waiting claim with
/// its place in the queue and the time until which it counts as alive. `keys` are `held`, `queue` and `alive`.
pub(crate) fn usage(server: &StandIn, keys: &[String; 3], reply: &Reply) -> Checked {
    let items = |key: &String| {
        let entry = server.entries().find(|(name, _)| *name == key);
        match entry.map(|(_, entry)| &entry.value) {
            Some(Value::Sorted(sorted)) => sorted.items().to_vec(),
            _ => Vec::new(),
        }
    };
    let listed = |items: Vec<(f64, String)>| {
        let words = items
            .into_iter()
            .flat_map(|(score, member)| [member, format!("{score:.0}")]);
        Reply::List(words.map(Reply::Text).collect())
    };
    // The mark of the last page: everything fits on one.
    let last = || Reply::Text("-".to_owned());
    let pages = keys
        .iter()
        .map(|key| Reply::List(vec![last(), listed(items(key))]));
    let expected = [Reply::Int(NOW_MS)].into_iter().chain(pages);
    match *reply == Reply::List(expected.collect()) {
        true => Ok(()),
        false => violated("U", format!("{reply:?} of {keys:?}")),
    }
}
