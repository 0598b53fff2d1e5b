//! Counts the permits in flight as their holders see them. A holder that does not know of a loss still counts.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::sleep};
use tower_semaphore::{Key, Permit};

/// How often all keys are counted, in addition to the count at each grant.
const PAUSE: Duration = Duration::from_millis(5);

/// The results since a failover.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The largest excess over the limit, for the keys that are in use the whole time.
    pub(crate) steady: usize,
    /// The largest excess over the limit, for the key of the burst before the failover.
    pub(crate) burst: usize,
    /// The total time during which a key was over its limit.
    pub(crate) over_for: Duration,
    /// The time from the promotion to the first grant.
    pub(crate) first_grant: Option<Duration>,
}

/// See the module docs.
pub(crate) struct Witness {
    limit: usize,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// The numbered permits of each key.
    held: HashMap<Key, Vec<(u64, Permit)>>,
    /// The number of the newest permit.
    last: u64,
    seen: Seen,
    /// The time of the promotion in the current failover.
    promoted: Option<Instant>,
}

/// The prefix of the keys that are claimed in a burst before a failover.
pub(crate) const BURST: &str = "burst";

impl Witness {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        let limit = limit as usize;
        let books = Mutex::default();
        Arc::new(Self { limit, books })
    }

    /// Counts a permit of the key until the returned value is dropped.
    pub(crate) fn holds(self: &Arc<Self>, key: &Key, permit: &Permit) -> Holding {
        let mut books = self.books.lock();
        books.last += 1;
        let number = books.last;
        let held = books.held.entry(key.clone()).or_default();
        held.push((number, permit.clone()));
        books.count(self.limit);
        if let Some(promoted) = books.promoted {
            books.seen.first_grant.get_or_insert(promoted.elapsed());
        }
        Holding {
            witness: Arc::clone(self),
            key: key.clone(),
            number,
        }
    }

    /// Resets the results before a failover.
    pub(crate) fn begin(&self) {
        let mut books = self.books.lock();
        (books.seen, books.promoted) = (Seen::default(), None);
    }

    pub(crate) fn promoted(&self, at: Instant) {
        self.books.lock().promoted = Some(at);
    }

    pub(crate) fn seen(&self) -> Seen {
        self.books.lock().seen
    }

    /// Counts every [`PAUSE`], because a lost permit that is regained causes no event.
    pub(crate) fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let witness = Arc::clone(self);
        tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                sleep(PAUSE).await;
                let mut books = witness.books.lock();
                if books.count(witness.limit) {
                    books.seen.over_for += last.elapsed();
                }
                last = Instant::now();
            }
        })
    }
}

impl Books {
    /// Counts all keys. Returns true if one of them is over the limit.
    fn count(&mut self, limit: usize) -> bool {
        let mut is_over = false;
        for (key, held) in &self.held {
            let count = held.iter().filter(|(_, permit)| !permit.is_lost()).count();
            let over = count.saturating_sub(limit);
            let most = match key.as_bytes().starts_with(BURST.as_bytes()) {
                true => &mut self.seen.burst,
                false => &mut self.seen.steady,
            };
            *most = over.max(*most);
            is_over |= over > 0;
        }
        is_over
    }
}

/// A permit that counts as held.
pub(crate) struct Holding {
    witness: Arc<Witness>,
    key: Key,
    number: u64,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut books = self.witness.books.lock();
        if let Some(held) = books.held.get_mut(&self.key) {
            held.retain(|(number, _)| *number != self.number);
            if held.is_empty() {
                books.held.remove(&self.key);
            }
        }
    }
}
