//! The permits, the waiters and the pause of a semaphore, as the pages of `usage.lua` list them.

use super::{
    answer::millis,
    id::{decoded, number},
    query::PAUSE_FLOW,
    reply::Reply,
};
use std::collections::BTreeMap;

/// The pages of a semaphore's usage that were read so far. Times are ms of the server's clock.
#[derive(Debug, Default)]
pub struct UsageListing {
    pub now: u64,
    /// The ids of held units, and when their leases end.
    pub held: BTreeMap<String, u64>,
    /// The ids of the waiters and of the pause, with their scores in the queue.
    queue: BTreeMap<String, f64>,
    /// The ids of the waiters and of the pause, and the times until which they count as alive.
    alive: BTreeMap<String, u64>,
}

/// The cursors of the next page, one for each list.
#[derive(Debug)]
pub struct Cursors(pub(super) [String; 3]);

impl Cursors {
    pub fn first() -> Self {
        Self(["0"; 3].map(str::to_owned))
    }
}

impl UsageListing {
    /// Adds a page. Returns `None` if the reply is no page, `Some(None)` after the last page, and else the cursors of
    /// the next page.
    pub fn add(&mut self, page: &Reply) -> Option<Option<Cursors>> {
        let [now, held, queue, alive] = page.list()? else {
            return None;
        };
        let now = millis(now.integer()?)?;
        let [held, queue, alive] = [list(held)?, list(queue)?, list(alive)?];
        self.now = now;
        self.held.extend(ends_after(now, held.1));
        self.queue.extend(queue.1);
        self.alive.extend(ends_after(now, alive.1));
        let next = [held.0, queue.0, alive.0].map(str::to_owned);
        let is_last = next.iter().all(|cursor| cursor == "-");
        Some((!is_last).then_some(Cursors(next)))
    }

    /// The pause of the semaphore, and its end.
    pub fn pause(&self) -> Option<(PauseEntry, u64)> {
        let mut entries = self.queue.keys();
        entries.find_map(|id| Some((PauseEntry::read(id)?, *self.alive.get(id)?)))
    }

    /// The entries in the order of the queue, with the times until which they count as alive. Includes the pause, whose
    /// id is no [`UnitId`](super::UnitId). A waiter that was granted between two pages is listed as a holder only.
    pub fn waiting(&self) -> Vec<(&str, u64)> {
        let queue = self.queue.iter();
        let queue = queue.filter(|(id, _)| !self.held.contains_key(*id));
        let mut queue: Vec<_> = queue.collect();
        // The sort is stable, so equal scores stay in the order of their ids, as in the server's set.
        queue.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let alive = |(id, _): (&'_ String, _)| self.alive.get_key_value(id);
        let waiting = queue.into_iter().filter_map(alive);
        waiting.map(|(id, ends)| (id.as_str(), *ends)).collect()
    }
}

/// Reads the cursor of a list's next page, and the members of this page with their scores.
fn list(reply: &Reply) -> Option<(&str, Vec<(String, f64)>)> {
    let [cursor, members] = reply.list()? else {
        return None;
    };
    let mut pairs = Vec::new();
    for pair in members.list()?.chunks(2) {
        let [id, score] = pair else { return None };
        let score = score.text()?.parse().ok()?;
        pairs.push((id.text()?.to_owned(), score));
    }
    Some((cursor.text()?, pairs))
}

/// The members whose time is after `now`. A score that is no valid time counts as past.
fn ends_after(now: u64, pairs: Vec<(String, f64)>) -> impl Iterator<Item = (String, u64)> {
    pairs.into_iter().filter_map(move |(id, ends)| {
        let ends = millis(ends as i64).filter(|ends| *ends > now)?;
        Some((id, ends))
    })
}

/// A pause, parsed from the id of its entry in the queue. Times are ms: `since` by the server's clock, `length` from
/// then on.
#[derive(Debug, PartialEq, Eq)]
pub struct PauseEntry {
    pub since: u64,
    pub length: u64,
    pub note: Option<String>,
}

impl PauseEntry {
    /// `None` if the text is not the id of a pause.
    pub fn read(id: &str) -> Option<Self> {
        let parts: Vec<_> = id.split('.').collect();
        let [
            _,
            "0",
            "0",
            "0",
            "0",
            "1",
            length,
            since,
            "1",
            PAUSE_FLOW,
            note,
        ] = parts[..]
        else {
            return None;
        };
        let note = String::from_utf8(decoded(note)).ok()?;
        Some(Self {
            since: since.parse().ok()?,
            length: number(length)?,
            note: Some(note).filter(|note| !note.is_empty()),
        })
    }
}

/// Reads the reply of revoke.lua, pause.lua or limits.lua: true if the change was made. The end of a pause counts as
/// made only if the pause existed.
pub fn is_done(reply: &Reply) -> Option<bool> {
    match reply.list()? {
        [now, done] => millis(now.integer()?)
            .and(done.integer())
            .map(|done| done == 1),
        _ => None,
    }
}
