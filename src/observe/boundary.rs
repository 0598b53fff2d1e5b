//! The boundary to user code that may panic: wakers, stores, and the recorder and the subscriber, which panic
//! repeatedly if one of their locks is poisoned. All calls to these two go through here, on the caller's thread: with
//! the caller's span, recorder and subscriber.

#![cfg_attr(not(any(feature = "metrics", feature = "tracing")), allow(dead_code))]

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls user code. Returns `None` if it panicked; the panic hook has then reported the panic. No state of this crate
/// is behind the boundary, so none is left half-changed. A drop may call this while its thread unwinds.
#[inline]
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// The payload of a panic is user code too: its drop may panic.
#[cold]
fn discard(payload: impl Sized) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    dropped.unwrap_or_else(mem::forget);
}

/// A value of a user's type: making, using and dropping it calls user code.
pub(super) struct Foreign<T>(Option<T>);

/// No value. Calls to it do nothing.
impl<T> Default for Foreign<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Foreign<T> {
    pub(super) fn new(make: impl FnOnce() -> T) -> Self {
        Self(contain(make))
    }

    /// Returns true if the value was made and the call did not panic.
    #[inline]
    pub(super) fn with(&self, call: impl FnOnce(&T)) -> bool {
        let value = self.0.as_ref();
        value.is_some_and(|value| contain(|| call(value)).is_some())
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        contain(|| drop(self.0.take()));
    }
}
