//! The boundary to the recorder and the subscriber, which are code of the user's and may panic, over and over
//! if a lock of theirs is poisoned. Each call goes through here, in its caller's place: with the caller's
//! span, recorder and subscriber.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls code of the user's. `None`: it has panicked, as the panic hook has told. No state of this crate is
/// behind the boundary, so none can be left at half; and a drop may call while its thread unwinds.
#[inline]
pub(super) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// The payload of a panic is the user's too, and its drop may panic.
#[cold]
fn discard(payload: impl Sized) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    dropped.unwrap_or_else(mem::forget);
}

/// A value of the user's. To make, use and drop it is to call their code.
pub(super) struct Foreign<T>(Option<T>);

impl<T> Foreign<T> {
    pub(super) fn new(make: impl FnOnce() -> T) -> Self {
        Self(contain(make))
    }

    /// Returns whether the value was made, and the call has not panicked.
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
