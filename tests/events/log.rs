//! The log of every thread, at the finest level.

use std::{
    io::{Result, Write},
    sync::{LazyLock, Mutex, MutexGuard},
};
use tracing_subscriber::fmt::format::FmtSpan;

static LOG: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .without_time()
        .with_ansi(false)
        .with_writer(|| Log)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("there is no other");
    Mutex::default()
});

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        lock().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn lock() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().expect("no test panics with it")
}

/// Starts to record the log of the whole process.
pub(crate) fn listen() {
    LazyLock::force(&LOG);
}

/// Everything that all tests of this program have logged so far.
pub(crate) fn text() -> String {
    String::from_utf8(lock().clone()).expect("it is text")
}

/// True if any test of this program has logged this text.
pub(crate) fn contains(part: &str) -> bool {
    let log = lock();
    let text = str::from_utf8(&log).expect("it is text");
    text.contains(part)
}
