//! How the server stops: at a signal it lets requests finish, within a bound.

use std::{io, time::Duration};
use tokio_util::sync::CancellationToken;

/// How long a response may go on after the signal to stop.
const DRAIN: Duration = Duration::from_secs(3);

/// A token that is cancelled at SIGINT or SIGTERM.
///
/// # Errors
///
/// When no signal handler can be installed.
pub(crate) fn on_signal() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (signal, stopping) = (signal()?, stop.clone());
    tokio::spawn(async move {
        signal.await;
        stopping.cancel();
    });
    Ok(stop)
}

/// Returns when the time of the responses is over.
pub(crate) async fn overdue(stop: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}

/// Listens from the call on, so that no signal is missed before the first poll.
#[cfg(unix)]
fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler the system ends the process by itself, so there is nothing to do.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
