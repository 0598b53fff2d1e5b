//! The store in Redis, and what the server itself says of it.

use crate::{
    case::BOUND,
    op::{LONG, PROCESSES},
    support::{redis::RedisServer, resp::Raw, wait::eventually},
    world::{Name, World},
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, semaphore::MAX_WEIGHT};

/// Two stores on one server, as two processes have them.
pub(crate) struct Redis {
    stores: [RedisSemaphore; PROCESSES],
    raw: Raw,
    case: u64,
    known: HashSet<Name>,
}

impl Redis {
    pub(crate) async fn connect(server: &RedisServer, lease: Duration) -> Self {
        // The longest that may be set: how busy this machine is does not matter here.
        let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
        let first = builder.clone().connect(server.url()).await;
        let second = builder.connect(server.url()).await;
        Self {
            stores: [first, second].map(|store| store.expect("it connects")),
            raw: Raw::connect(server.port()).await,
            case: 0,
            known: HashSet::new(),
        }
    }

    /// Has each store listen to its messages: who waits while it begins to, looks once more.
    pub(crate) async fn listening(mut self) -> Self {
        for process in 0..PROCESSES {
            let claim = self.claim(process).with_limit(1);
            let held = self.stores[process].acquire(claim.clone()).await;
            let waits = tokio::spawn(self.stores[process].acquire(claim.with_wait(LONG)));
            let channels = ["PUBSUB", "CHANNELS", "semaphore:wake:*"];
            eventually("it listens", BOUND, async || {
                self.raw.cmd(&channels).await.array().len() > process
            })
            .await;
            drop(held);
            assert!(matches!(waits.await, Ok(Ok(_))));
        }
        self
    }

    /// The same stores, with keys that nobody has used.
    pub(crate) fn next_case(&mut self) {
        self.case += 1;
        self.known.clear();
    }

    /// How many units of a key are held.
    pub(crate) async fn held(&mut self, key: usize) -> u32 {
        let now = self.raw.server_time_ms().await.to_string();
        let held = self.set(key, "held");
        let count = self.raw.cmd(&["ZCOUNT", &held, &now, "+inf"]).await.int();
        u32::try_from(count).expect("it is small")
    }

    fn set(&self, key: usize, set: &str) -> String {
        format!("semaphore:{{case-{}:{key}}}:{set}", self.case)
    }

    /// The units of a key that the server lists, with the ends of their leases.
    pub(crate) async fn units(&mut self, key: usize) -> Vec<(Name, f64)> {
        let held = self.set(key, "held");
        self.raw.zmembers(held).await
    }

    /// Takes units out of the server's list, or lets their leases have ended long ago.
    pub(crate) async fn strike(&mut self, key: usize, name: &Name, listed: bool) {
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

/// A permit's first unit has its name, the others have their number after it.
pub(crate) fn is_unit_of(unit: &Name, name: &Name) -> bool {
    unit.split(|byte| *byte == b':').next() == Some(name)
}

impl World for Redis {
    fn store(&self, process: usize) -> &dyn Semaphore {
        &self.stores[process]
    }

    fn claim(&self, key: usize) -> Claim {
        Claim::new(key as u64).with_policy(format!("case-{}", self.case))
    }

    async fn look(&mut self, key: usize) -> (u32, Vec<Name>) {
        let line = self.set(key, "queue");
        let line = self.raw.zmembers(line).await;
        let line = line.into_iter().map(|(name, _)| name).collect();
        (self.held(key).await, line)
    }

    async fn name(&mut self, key: usize) -> Name {
        let start = Instant::now();
        loop {
            let mut names = self.look(key).await.1;
            names.extend(self.units(key).await.into_iter().map(|(unit, _)| unit));
            let new = |name: &Name| !name.contains(&b':') && !self.known.contains(name);
            if let Some(name) = names.into_iter().find(new) {
                self.known.insert(name.clone());
                return name;
            }
            assert!(
                start.elapsed() < BOUND,
                "a claim is neither listed nor in line"
            );
        }
    }

    async fn expire(&mut self, key: usize, name: &Name, _: &Permit, listed: bool) {
        self.strike(key, name, listed).await;
        // The head of the line does not know of what our hand has done: a try has the store look.
        if !self.look(key).await.1.is_empty() {
            let claim = self
                .claim(key)
                .with_limit(MAX_WEIGHT)
                .with_weight(MAX_WEIGHT);
            assert!(self.stores[0].acquire(claim).await.is_err());
        }
    }

    async fn forget(&mut self, key: usize) {
        let ticket = self.set(key, "token");
        self.raw.cmd(&["DEL", &ticket]).await;
    }
}
