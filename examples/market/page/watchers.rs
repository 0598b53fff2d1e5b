//! The watchers of accounts. One task per watched account polls its permits for all of its watchers, and ends when the
//! last of them has gone.

use super::{refusals::Refusal, snapshot::Snapshot};
use crate::{account::Account, holders::Holders};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{broadcast, watch},
    time::{MissedTickBehavior, interval},
};

/// The time between two snapshots. A change is shown after at most this time plus the time of a call.
const PERIOD: Duration = Duration::from_millis(100);

/// The number of refusals that a watcher may lag behind. A slower watcher misses some.
const BACKLOG: usize = 64;

/// The account's holders and waiters as JSON, or `None` while the store does not answer.
pub(super) type Seen = Option<Arc<str>>;

/// All watchers of accounts in this process.
#[derive(Clone)]
pub(crate) struct Watchers(Arc<Shared>);

struct Shared {
    holders: Holders,
    watched: Mutex<HashMap<Account, Watched>>,
}

/// An account with watchers.
struct Watched {
    usage: watch::Sender<Option<Seen>>,
    refusals: broadcast::Sender<Refusal>,
}

/// The channels that a watcher receives.
pub(super) struct Watching {
    /// `None` before the first snapshot.
    pub(super) usage: watch::Receiver<Option<Seen>>,
    pub(super) refusals: broadcast::Receiver<Refusal>,
}

impl Watchers {
    pub(crate) fn new(holders: Holders) -> Self {
        let watched = Mutex::default();
        Self(Arc::new(Shared { holders, watched }))
    }

    /// Watches an account until the returned value is dropped.
    pub(super) fn watch(&self, account: Account) -> Watching {
        let mut all = self.0.watched();
        let watched = all.entry(account.clone()).or_insert_with(|| {
            tokio::spawn(poll_until_all_left(Arc::clone(&self.0), account));
            Watched {
                usage: watch::Sender::new(None),
                refusals: broadcast::Sender::new(BACKLOG),
            }
        });
        Watching {
            usage: watched.usage.subscribe(),
            refusals: watched.refusals.subscribe(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.watched().is_empty()
    }

    /// Sends a refusal to those who watch `account`.
    pub(super) fn notify(&self, account: &Account, refusal: Refusal) {
        if let Some(watched) = self.0.watched().get(account) {
            // Sending fails only if they are about to leave.
            let _ = watched.refusals.send(refusal);
        }
    }
}

impl Shared {
    /// Entries change in single steps, so they are consistent even under a poisoned lock.
    fn watched(&self) -> MutexGuard<'_, HashMap<Account, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a snapshot for later watchers, and sends it to all watchers if it is new. Returns false if no watcher is
    /// left. The account's entry is then removed, and the next watcher starts another task.
    fn publish(&self, account: &Account, seen: Seen, is_new: bool) -> bool {
        let mut all = self.watched();
        let Some(watched) = all.get(account) else {
            return false;
        };
        if watched.usage.receiver_count() == 0 {
            all.remove(account);
            return false;
        }
        watched.usage.send_if_modified(|last| {
            *last = Some(seen);
            is_new
        });
        true
    }
}

async fn poll_until_all_left(shared: Arc<Shared>, account: Account) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        // The error is dropped: `GET /accounts/{id}/permits` reports it to operators.
        let usage = shared.holders.usage(account.clone()).await.ok();
        let snapshot = usage.map(Snapshot::new);
        let is_new = last.as_ref() != Some(&snapshot);
        // Encoded once for all watchers, because a long queue takes long to encode.
        let seen = snapshot.as_ref().map(|snapshot| snapshot.to_json().into());
        if !shared.publish(&account, seen, is_new) {
            return;
        }
        last = Some(snapshot);
    }
}
