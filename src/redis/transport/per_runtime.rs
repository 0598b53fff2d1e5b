//! One value for each Tokio runtime.

use parking_lot::RwLock;
use std::{future::pending, sync::Arc};
use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
};

/// Values by the runtime that first needed one. Those of runtimes that have ended are dropped
/// when the next runtime comes.
pub(super) struct PerRuntime<T> {
    entries: RwLock<Vec<Entry<T>>>,
}

struct Entry<T> {
    runtime: Id,
    value: Arc<T>,
    /// A task that ends with the runtime only.
    witness: AbortHandle,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        self.witness.abort();
    }
}

impl<T> PerRuntime<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: RwLock::new(Vec::new()),
        }
    }

    /// The value of the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(super) fn get_or_make(&self, make: impl FnOnce(Handle) -> T) -> Arc<T> {
        let runtime = Handle::current();
        let found = find(&self.entries.read(), runtime.id());
        found.unwrap_or_else(|| self.add(runtime, make))
    }

    #[cold]
    fn add(&self, runtime: Handle, make: impl FnOnce(Handle) -> T) -> Arc<T> {
        let mut entries = self.entries.write();
        entries.retain(|entry| !entry.witness.is_finished());
        if let Some(value) = find(&entries, runtime.id()) {
            return value;
        }
        let entry = Entry {
            runtime: runtime.id(),
            witness: runtime.spawn(pending::<()>()).abort_handle(),
            value: Arc::new(make(runtime)),
        };
        let value = Arc::clone(&entry.value);
        entries.push(entry);
        value
    }
}

fn find<T>(entries: &[Entry<T>], runtime: Id) -> Option<Arc<T>> {
    let entry = entries.iter().find(|entry| entry.runtime == runtime)?;
    Some(Arc::clone(&entry.value))
}
