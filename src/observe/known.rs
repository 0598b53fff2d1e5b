//! The instruments that a thread has cached.
//!
//! A lookup hashes the labels and searches the recorder's table, which takes half a microsecond;
//! acquiring a permit in memory takes a tenth of that. So a thread caches the instruments of recent
//! policies, until the recorder changes and for a second at most: a recorder may forget idle
//! instruments, and counts of a forgotten instrument are lost.

#[cfg(feature = "redis")]
use super::names::Calls;
use super::{
    names::{self, Claims, Requests, describe_all},
    outcome::{Outcome, Store},
    recorder::{self, Counter},
};
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How long instruments are cached.
const FRESH: Duration = Duration::from_secs(1);

/// Maximum of cached policies; one more clears the cache. It suffices for a gateway with a policy
/// per route, and searching this many is much cheaper than a lookup.
const MOST: usize = 256;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known::new()) };
}

/// The recorder that last got the descriptions of the instruments.
static DESCRIBED: AtomicUsize = AtomicUsize::new(0);

struct Known {
    recorder: usize,
    since: Option<Instant>,
    requests: Kept<(), Requests>,
    claims: Kept<Store, Claims>,
    #[cfg(feature = "redis")]
    calls: Kept<Store, Calls>,
}

/// The instruments of a kind and a name.
struct Kept<K, I>(Vec<(K, Box<str>, Arc<I>)>);

/// The instruments of a policy's requests. Without `now` they may be old.
pub(super) fn requests(policy: &str, now: Option<Instant>) -> Arc<Requests> {
    let make = || Requests::register(policy);
    with(|known| known.fresh(now).requests.get((), policy, make)).unwrap_or_else(|| make().into())
}

/// The instruments of a policy in a store.
pub(super) fn claims(store: Store, policy: &str, now: Instant) -> Arc<Claims> {
    let make = || Claims::register(store, policy);
    let find = |known: &mut Known| known.fresh(Some(now)).claims.get(store, policy, make);
    with(find).unwrap_or_else(|| make().into())
}

/// The instruments of a verb to a store's server.
#[cfg(feature = "redis")]
pub(super) fn calls(store: Store, verb: &'static str, now: Instant) -> Arc<Calls> {
    let make = || Calls::register(store, verb);
    let find = |known: &mut Known| known.fresh(Some(now)).calls.get(store, verb, make);
    with(find).unwrap_or_else(|| make().into())
}

/// The requests that a policy in shadow would have refused with this outcome. Not cached.
pub(super) fn shadow(policy: &str, outcome: Outcome) -> Counter {
    with(|known| known.fresh(None).since);
    names::shadow(policy, outcome)
}

/// `None` in a thread that ends, or within a recorder that itself uses this crate.
fn with<T>(find: impl FnOnce(&mut Known) -> T) -> Option<T> {
    let known = KNOWN.try_with(|known| {
        known
            .try_borrow_mut()
            .ok()
            .map(|mut known| find(&mut known))
    });
    known.ok().flatten()
}

impl Known {
    const fn new() -> Self {
        Self {
            recorder: 0,
            since: None,
            requests: Kept(Vec::new()),
            claims: Kept(Vec::new()),
            #[cfg(feature = "redis")]
            calls: Kept(Vec::new()),
        }
    }

    /// The cached instruments, if still valid. Reading `now` costs as much as all the rest, so a
    /// caller that does not need the time omits it and relies on other callers.
    fn fresh(&mut self, now: Option<Instant>) -> &mut Self {
        let recorder = recorder::address();
        let is_old = |since: Instant| now.is_some_and(|now| now - since >= FRESH);
        if self.recorder != recorder || self.since.is_none_or(is_old) {
            *self = Self::new();
            (self.recorder, self.since) = (recorder, Some(now.unwrap_or_else(Instant::now)));
            if DESCRIBED.swap(recorder, Relaxed) != recorder {
                describe_all();
            }
        }
        self
    }
}

impl<K: PartialEq, I> Kept<K, I> {
    fn get(&mut self, kind: K, name: &str, make: impl FnOnce() -> I) -> Arc<I> {
        let is_it = |(of, known, _): &&(K, Box<str>, Arc<I>)| *of == kind && **known == *name;
        if let Some((_, _, found)) = self.0.iter().find(is_it) {
            return Arc::clone(found);
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let made = Arc::new(make());
        self.0.push((kind, name.into(), Arc::clone(&made)));
        made
    }
}
