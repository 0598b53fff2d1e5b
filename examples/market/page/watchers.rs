//! Who watches which account. One task for an account looks who holds its permits, for all who watch
//! it, and ends when the last of them has gone.

use super::{look::Look, refusals::Refusal};
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

/// How often a task looks. A change is shown after so long at most, and the time of a call.
const PERIOD: Duration = Duration::from_millis(100);

/// How many refusals a watcher may be behind; then it misses some.
const BACKLOG: usize = 64;

/// Who holds an account's permits and who waits, as JSON; `None` while the store does not say.
pub(super) type Seen = Option<Arc<str>>;

/// All who watch an account of this process.
#[derive(Clone)]
pub(crate) struct Watchers(Arc<Shared>);

struct Shared {
    holders: Holders,
    watched: Mutex<HashMap<Account, Watched>>,
}

/// An account that somebody watches.
struct Watched {
    usage: watch::Sender<Option<Seen>>,
    refusals: broadcast::Sender<Refusal>,
}

/// What a watcher is told.
pub(super) struct Watching {
    /// `None` before the first look.
    pub(super) usage: watch::Receiver<Option<Seen>>,
    pub(super) refusals: broadcast::Receiver<Refusal>,
}

impl Watchers {
    pub(crate) fn new(holders: Holders) -> Self {
        let watched = Mutex::default();
        Self(Arc::new(Shared { holders, watched }))
    }

    /// Watches an account, until what is returned is dropped.
    pub(super) fn watch(&self, account: Account) -> Watching {
        let mut all = self.0.watched();
        let watched = all.entry(account.clone()).or_insert_with(|| {
            tokio::spawn(look_until_all_left(Arc::clone(&self.0), account));
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

    /// Tells those who watch `account`.
    pub(super) fn tell(&self, account: &Account, refusal: Refusal) {
        if let Some(watched) = self.0.watched().get(account) {
            // An error only means that they are about to leave.
            let _ = watched.refusals.send(refusal);
        }
    }
}

impl Shared {
    /// Entries change in single steps, so they are consistent even under a poisoned lock.
    fn watched(&self) -> MutexGuard<'_, HashMap<Account, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was seen for those who come, and tells it to all if it is new. `false` if nobody is left: then the account is no longer
    /// watched, and whoever comes next starts another task.
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

async fn look_until_all_left(shared: Arc<Shared>, account: Account) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        // The operator is told by `GET /accounts/{id}/permits`.
        let usage = shared.holders.usage(account.clone()).await.ok();
        let look = usage.map(Look::at);
        let is_new = last.as_ref() != Some(&look);
        // Once for all who watch: a long queue is long to write.
        let seen = look.as_ref().map(|look| look.to_json().into());
        if !shared.publish(&account, seen, is_new) {
            return;
        }
        last = Some(look);
    }
}
