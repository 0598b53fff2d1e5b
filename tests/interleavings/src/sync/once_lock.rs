//! Replaces the standard library's `OnceLock`.

use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

/// The standard library's `OnceLock`, with an ordering that loom sees: a `Release` store publishes the value, and `get`
/// loads with `Acquire`. So a `get` that is not ordered after the initialization may find nothing.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    setting: loom::sync::Mutex<()>,
    is_set: AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            setting: loom::sync::Mutex::default(),
            is_set: AtomicBool::default(),
        }
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        let is_set = self.is_set.load(Acquire);
        self.value.get().filter(|_| is_set)
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let setting = self.setting.lock();
        let value = self.value.get_or_init(init);
        self.is_set.store(true, Release);
        drop(setting);
        value
    }
}
