//! The store in Redis, and its state as the server lists it.

use crate::{
    case::BOUND,
    driver::{Driver, Name},
    op::PROCESSES,
    support::{redis::RedisServer, resp::Raw, wait::eventually},
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, semaphore::MAX_WEIGHT};

/// Two stores on one server, as in two processes.
pub(crate) struct Redis {
    stores: [RedisSemaphore; PROCESSES],
    lease: Duration,
    raw: Raw,
    case: u64,
    seen_names: HashSet<Name>,
}

impl Redis {
    pub(crate) async fn connect(server: &RedisServer, lease: Duration) -> Self {
        // The longest timeout that is accepted, so that a busy machine fails no case.
        let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
        let first = builder.clone().connect(server.url()).await;
        let second = builder.connect(server.url()).await;
        Self {
            stores: [first, second].map(|store| store.expect("it connects")),
            lease,
            raw: Raw::connect(server.port()).await,
            case: 0,
            seen_names: HashSet::new(),
        }
    }

    /// Waits until both stores have subscribed to their channels, so that no waiter polls because of a new
    /// subscription.
    pub(crate) async fn listening(mut self) -> Self {
        let channels = ["PUBSUB", "CHANNELS", "semaphore:wake:*"];
        eventually("the stores listen", BOUND, async || {
            self.raw.cmd(&channels).await.array().len() == PROCESSES
        })
        .await;
        self
    }

    /// The same stores, with keys that no case has used.
    pub(crate) fn next_case(&mut self) {
        self.case += 1;
        self.seen_names.clear();
    }

    /// How many units of a key are held.
    pub(crate) async fn held(&mut self, key: usize) -> u32 {
        let now = self.raw.server_time_ms().await.to_string();
        let held = self.set(key, "held");
        let count = self.raw.cmd(&["ZCOUNT", &held, &now, "+inf"]).await.int();
        u32::try_from(count).expect("few units are held")
    }

    fn set(&self, key: usize, set: &str) -> String {
        format!("semaphore:{{case-{}:{key}}}:{set}", self.case)
    }

    /// The units of a key that the server lists, with the ends of their leases.
    pub(crate) async fn units(&mut self, key: usize) -> Vec<(Name, f64)> {
        let held = self.set(key, "held");
        self.raw.zmembers(held).await
    }

    /// Waits until a permit has a whole lease. One from the queue has less until its store refreshes it,
    /// at the next tick, which would bring back what was lost.
    async fn has_whole_lease(&mut self, key: usize, name: &Name) {
        let almost_whole = self.lease.mul_f64(0.9).as_millis() as f64;
        eventually("the permit is refreshed", BOUND, async || {
            let now = self.raw.server_time_ms().await as f64;
            let units = self.units(key).await.into_iter();
            let mut units = units.filter(|(unit, _)| is_unit_of(unit, name));
            units.all(|(_, end)| end < now || end > now + almost_whole)
        })
        .await;
    }

    /// Removes a permit's units from the server's list, or sets the ends of their leases to long ago.
    pub(crate) async fn end_lease(&mut self, key: usize, name: &Name, listed: bool) {
        let held = self.set(key, "held").into_bytes();
        for (unit, _) in self.units(key).await {
            if !is_unit_of(&unit, name) {
                continue;
            }
            let reply = match listed {
                true => self.raw.cmd(&[b"ZADD", &held[..], b"1", &unit]).await,
                false => self.raw.cmd(&[b"ZREM", &held[..], &unit]).await,
            };
            assert_eq!(reply.error(), None);
        }
    }
}

/// A permit's first unit has its name, and each other unit that name and a number. A permit that was lost
/// may come back under another name: the second word, its number, is higher then in the bits above 48.
pub(crate) fn is_unit_of(unit: &Name, name: &Name) -> bool {
    let first = unit.split(|byte| *byte == b':').next();
    first.is_some_and(|first| is_same_permit(first, name))
}

/// Whether two names of first units are of one permit.
pub(crate) fn is_same_permit(name: &[u8], other: &[u8]) -> bool {
    let words = |name: &[u8]| -> Option<(String, u64)> {
        let text = str::from_utf8(name).ok()?;
        let mut words = text.split('.');
        let (process, number) = (words.next()?, words.next()?);
        let number = u64::from_str_radix(number, 16).ok()?;
        Some((process.to_owned(), number % (1 << 48)))
    };
    !name.contains(&b':') && words(name).is_some() && words(name) == words(other)
}

impl Driver for Redis {
    fn store(&self, process: usize) -> &dyn Semaphore {
        &self.stores[process]
    }

    fn claim(&self, key: usize) -> Claim {
        Claim::new(key as u64).with_policy(format!("case-{}", self.case))
    }

    async fn inspect(&mut self, key: usize) -> (u32, Vec<Name>) {
        let queue = self.set(key, "queue");
        let queue = self.raw.zmembers(queue).await;
        let queue = queue.into_iter().map(|(name, _)| name).collect();
        (self.held(key).await, queue)
    }

    async fn name(&mut self, key: usize) -> Name {
        let start = Instant::now();
        loop {
            let mut names = self.inspect(key).await.1;
            names.extend(self.units(key).await.into_iter().map(|(unit, _)| unit));
            let new = |name: &Name| !name.contains(&b':') && !self.seen_names.contains(name);
            if let Some(name) = names.into_iter().find(new) {
                self.seen_names.insert(name.clone());
                return name;
            }
            assert!(
                start.elapsed() < BOUND,
                "a claim is neither granted nor in the queue"
            );
        }
    }

    async fn expire(&mut self, key: usize, name: &Name, _: &Permit, listed: bool) {
        self.has_whole_lease(key, name).await;
        self.end_lease(key, name, listed).await;
        // No release wakes the head of the queue: a claim that is refused makes the store grant it.
        if !self.inspect(key).await.1.is_empty() {
            let claim = self
                .claim(key)
                .with_limit(MAX_WEIGHT)
                .with_weight(MAX_WEIGHT);
            assert!(self.stores[0].acquire(claim).await.is_err());
        }
    }

    async fn expire_token(&mut self, key: usize) {
        let token = self.set(key, "token");
        self.raw.cmd(&["DEL", &token]).await;
    }
}
