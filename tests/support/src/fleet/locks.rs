//! A child's commands about locks.

use super::{RETRIES, fenced::FencedFile, witness::Witness};
use std::{collections::HashMap, process, time::Duration};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Lock, LockGuard, RedisSemaphore};

/// How long a holder works before it frees the lock.
const WORK: Duration = Duration::from_millis(20);

/// The locks that a child holds, under the names that its parent chose.
pub(super) struct Locks {
    store: RedisSemaphore,
    guards: HashMap<String, LockGuard>,
}

impl Locks {
    pub(super) fn new(store: RedisSemaphore) -> Self {
        let guards = HashMap::new();
        Self { store, guards }
    }

    /// Runs a command about locks and returns its answer. Returns `None` for other commands.
    pub(super) async fn run(&mut self, words: &[&str]) -> Option<String> {
        Some(match *words {
            ["lock", name, key, timeout] => self.lock(name, key, timeout).await,
            ["write", name, file] => {
                let token = self.guards[name].token();
                FencedFile::at(file).write(token, name).to_string()
            }
            ["unlock", name] => {
                let guard = self.guards.remove(name).expect("it was locked");
                guard.release().await.to_string()
            }
            ["repeat", key, file] => {
                let lock = self.lock_of(key);
                tokio::spawn(lock_repeatedly(lock, Witness::at(file)));
                "started".to_owned()
            }
            _ => return None,
        })
    }

    fn lock_of(&self, key: &str) -> Lock {
        Lock::new(self.store.clone(), key.to_owned())
    }

    async fn lock(&mut self, name: &str, key: &str, timeout: &str) -> String {
        let timeout = Duration::from_millis(timeout.parse().expect("a number"));
        match acquire(&self.lock_of(key), timeout).await {
            Ok(guard) => {
                let token = guard.token().to_string();
                self.guards.insert(name.to_owned(), guard);
                token
            }
            Err(AcquireError::TimedOut { .. }) => "timed out".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }
}

/// Retries when the store fails, because a call may time out on a busy machine.
async fn acquire(lock: &Lock, timeout: Duration) -> Result<LockGuard, AcquireError> {
    for _ in 0..RETRIES {
        match lock.acquire(timeout).await {
            Err(AcquireError::Store { .. }) => {}
            answer => return answer,
        }
    }
    lock.acquire(timeout).await
}

/// Takes the lock repeatedly, and logs each grant to the witness.
async fn lock_repeatedly(lock: Lock, witness: Witness) {
    let me = process::id();
    loop {
        // If the process was stopped, its wait has ended or its connection is broken.
        let Ok(guard) = lock.acquire(Duration::from_secs(5)).await else {
            continue;
        };
        let token = guard.token();
        witness.write("start", me, token);
        sleep(WORK).await;
        witness.write("end", me, token);
        // Checked after the end was written. A guard that is not lost now was not lost before.
        if guard.is_lost() || guard.token() != token {
            witness.write("lost", me, token);
        }
        guard.release().await;
    }
}
