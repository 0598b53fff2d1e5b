//! The fullest keys of a policy, and its longest queues.

use crate::{
    failure::Failure,
    table::{Style, paused},
    text::{fitted, key, shown},
};
use futures_util::future::join_all;
use std::{
    cmp::Ordering,
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, SystemTime},
};
use tower_semaphore::{
    Operate, Policy, RedisSemaphore,
    semaphore::{KeyCounts, KeyPage, StoredKey},
};

/// The longest time for which a store looks for a page of keys.
const PAGE_TIME: Duration = Duration::from_millis(100);

/// The keys of a policy that have permits or waiters, or are paused: page by page, each once.
pub(crate) struct Pages<'a> {
    store: &'a RedisSemaphore,
    policy: &'a Policy,
    /// The cursor of the next page: `Some(None)` for the first page, and `None` after the last.
    next: Option<Option<String>>,
    /// The hashes of the keys so far: a few megabytes for 100,000 keys, whatever their lengths.
    seen: HashSet<u64>,
    hashes: RandomState,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(store: &'a RedisSemaphore, policy: &'a Policy) -> Self {
        Self {
            store,
            policy,
            next: Some(None),
            seen: HashSet::new(),
            hashes: RandomState::new(),
        }
    }

    /// The next page with its counts. A key whose permits and pause have ended is left out.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<KeyCounts>>, Failure> {
        let Some(cursor) = self.next.take() else {
            return Ok(None);
        };
        let page = self
            .store
            .keys_page(self.policy, cursor.as_deref(), PAGE_TIME)
            .await;
        let page = page.map_err(|error| Failure::store(&error))?;
        let KeyPage { mut keys, next, .. } = page.unwrap_or_default();
        self.next = next.map(Some);
        keys.retain(|key| self.seen.insert(self.hashes.hash_one(key)));
        let counts = self.store.counts(self.policy, &keys).await;
        let mut counts = counts.map_err(|error| Failure::store(&error))?;
        counts.retain(|counts| counts.units > 0 || counts.waiting > 0 || counts.pause.is_some());
        Ok(Some(counts))
    }
}

/// A key, and its limit if that was looked up.
pub(crate) type Row = (KeyCounts, Option<u32>);

/// The totals of a policy, its fullest keys and its longest queues.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) keys: u64,
    pub(crate) units: u64,
    pub(crate) waiting: u64,
    /// How many keys are paused.
    pub(crate) paused: u64,
    pub(crate) fullest: Vec<Row>,
    pub(crate) longest_queues: Vec<Row>,
}

/// The limit of a key is not looked up if more units than this are held, or more claims wait: `usage` reads them all.
const HEAVY: u32 = 1_000;

impl Tally {
    /// Counts all keys, and keeps `rows` of them in each list.
    pub(crate) async fn count(
        store: &RedisSemaphore,
        policy: &Policy,
        rows: usize,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, Failure> {
        let (mut tally, mut pages) = (Self::default(), Pages::new(store, policy));
        while let Some(counts) = pages.next().await? {
            for counts in &counts {
                tally.add(counts, rows);
            }
            progress(tally.keys);
        }
        tally.look_up(store, policy).await;
        Ok(tally)
    }

    fn add(&mut self, counts: &KeyCounts, rows: usize) {
        self.keys += 1;
        self.units += u64::from(counts.units);
        self.waiting += u64::from(counts.waiting);
        self.paused += u64::from(counts.pause.is_some());
        insert(&mut self.fullest, counts, rows, |counts| counts.units);
        if counts.waiting > 0 {
            insert(&mut self.longest_queues, counts, rows, |counts| {
                counts.waiting
            });
        }
    }

    async fn look_up(&mut self, store: &RedisSemaphore, policy: &Policy) {
        let rows = self.fullest.iter_mut().chain(&mut self.longest_queues);
        let lookups = rows.map(async |(counts, limit)| {
            if let StoredKey::Whole { key, .. } = &counts.key
                && counts.units.max(counts.waiting) <= HEAVY
                // An unknown limit is not shown.
                && let Ok(usage) = store.usage(policy, key).await
            {
                *limit = usage.limit;
            }
        });
        join_all(lookups).await;
    }

    /// The text of one screen.
    pub(crate) fn text(&self, policy: &str, style: Style) -> String {
        let (keys, units, waiting, paused) = (self.keys, self.units, self.waiting, self.paused);
        let name = style.bold(&shown(policy));
        let counts = format!("keys {keys}, held {units}, waiting {waiting}, paused {paused}");
        let (mut text, now) = (format!("{name}: {counts}\n"), SystemTime::now());
        for (heading, rows) in [
            ("FULLEST", &self.fullest),
            ("LONGEST QUEUES", &self.longest_queues),
        ] {
            if !rows.is_empty() {
                let head = format!("UNITS  LIMIT  WAITING   PAUSED  {heading}");
                text += &format!("\n{}\n", style.bold(&head));
                rows.iter().for_each(|row| text += &line(row, now, style));
            }
        }
        text
    }
}

/// Inserts a key into a list of up to `rows` keys, at least one: those with the highest number first. Keys with the same
/// number are in the order of their texts.
fn insert(list: &mut Vec<Row>, counts: &KeyCounts, rows: usize, number: fn(&KeyCounts) -> u32) {
    // A key's text is made only if the numbers are the same.
    let is_before = |other: &KeyCounts| match number(other).cmp(&number(counts)) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal => key(&other.key) < key(&counts.key),
    };
    let mut last = list.iter().skip(rows - 1);
    if last.any(|(other, _)| is_before(other)) {
        return;
    }
    let at = list.partition_point(|(other, _)| is_before(other));
    list.insert(at, (counts.clone(), None));
    list.truncate(rows);
}

/// One row. The columns of numbers are as wide as their headings, and the key has the rest of the line.
fn line((counts, limit): &Row, now: SystemTime, style: Style) -> String {
    let limit = limit.map_or("-".to_owned(), |limit| limit.to_string());
    let (units, waiting) = (counts.units, counts.waiting);
    let paused = paused(counts.pause.as_ref(), now);
    let numbers = format!("{units:>5}  {limit:>5}  {waiting:>7}  {paused:>7}  ");
    let room = style
        .width
        .map(|width| usize::from(width).saturating_sub(numbers.len()));
    let key = key(&counts.key);
    format!(
        "{numbers}{}\n",
        room.map_or(key.clone(), |room| fitted(&key, room))
    )
}
