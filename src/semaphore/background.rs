//! A runtime of the process itself, for timers that go on after the runtime that they began in has
//! ended.

use parking_lot::Mutex;
use std::{future::pending, sync::mpsc, thread};
use tokio::runtime::{Builder, Handle};

static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// The runtime, with time enabled. The first call starts its thread, which lasts as long as the
/// process. `None`: the system cannot start a thread.
pub(crate) fn runtime() -> Option<Handle> {
    let mut runtime = RUNTIME.lock();
    if runtime.is_none() {
        *runtime = start();
    }
    runtime.clone()
}

/// The thread makes the runtime, because a caller without a thread could not drop one in an
/// asynchronous context.
fn start() -> Option<Handle> {
    let (sender, started) = mpsc::channel();
    let run = move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
            // Cannot fail: `start` waits for the handle.
            let _ = sender.send(runtime.handle().clone());
            runtime.block_on(pending::<()>());
        }
    };
    let thread = thread::Builder::new().name("tower-semaphore".to_owned());
    thread.spawn(run).ok()?;
    started.recv().ok()
}
