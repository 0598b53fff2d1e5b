//! Counts the permits in flight, as their holders see them: who does not know of a loss holds one.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::sleep};
use tower_semaphore::{Key, Permit};

/// How often all keys are counted, beside each grant.
const PAUSE: Duration = Duration::from_millis(5);

/// What was seen since a failover.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The most that was in flight beyond the limit, of a key that was in use for long.
    pub(crate) steady: usize,
    /// The same of the key that many claimed just before.
    pub(crate) burst: usize,
    /// How long a key was over its limit.
    pub(crate) over_for: Duration,
    /// When the first permit was granted after the promotion.
    pub(crate) first_grant: Option<Duration>,
}

/// See the module docs.
pub(crate) struct Witness {
    limit: usize,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    held: HashMap<Key, Vec<(u64, Permit)>>,
    last: u64,
    seen: Seen,
    promoted: Option<Instant>,
}

/// The key that is claimed by many just before a failover begins with this.
pub(crate) const BURST: &str = "burst";

impl Witness {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        let limit = limit as usize;
        let books = Mutex::default();
        Arc::new(Self { limit, books })
    }

    /// Somebody holds a permit of the key, until the answer is dropped.
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

    /// A failover begins.
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

    /// Counts again and again, because a loss that ends makes no sound.
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
    /// Counts all keys. Whether one of them is over the limit.
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

/// A permit that somebody holds.
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
