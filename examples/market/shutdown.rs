//! The shutdown: after a signal the server accepts no more connections, and lets requests finish within a bound.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Version, header::CONNECTION},
    middleware::Next,
    response::Response,
    serve::Listener,
};
use std::{future::pending, io, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long a connection may still send a request after the signal to stop.
const LAST_REQUEST: Duration = Duration::from_millis(250);

/// How long a response may continue after the signal to stop.
const DRAIN: Duration = Duration::from_secs(3);

/// A token that is cancelled at SIGINT or SIGTERM.
///
/// # Errors
///
/// Returns an error if no signal handler can be installed.
pub(crate) fn on_signal() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (signal, stopping) = (signal()?, stop.clone());
    tokio::spawn(async move {
        signal.await;
        stopping.cancel();
    });
    Ok(stop)
}

/// Returns when connections without a request may be closed.
///
/// Closing them earlier would break requests: a proxy that has just sent a POST on such a connection answers with 502,
/// because it cannot know that the request was not served.
pub(crate) async fn idle_connections_close(stop: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_REQUEST).await;
}

/// After the signal to stop, asks the client to send further requests on other connections.
pub(crate) async fn ask_to_leave(
    State(stop): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    // HTTP/2 has no `connection` header.
    let has_connections = request.version() <= Version::HTTP_11;
    let mut response = next.run(request).await;
    if has_connections && stop.is_cancelled() {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A listener that closes at the signal to stop, after it has accepted every connection that was made before.
///
/// When a listener is dropped, the system resets the connections that wait in it. After a reset a proxy must not repeat
/// a POST on another server, but it may if the connection was refused.
pub(crate) struct ClosingListener {
    address: SocketAddr,
    /// `None` once it is closed.
    listener: Option<TcpListener>,
    /// The connections that waited in the listener when it closed.
    backlog: Vec<(TcpStream, SocketAddr)>,
    stop: CancellationToken,
}

impl ClosingListener {
    /// # Errors
    ///
    /// Returns an error if the listener has no address.
    pub(crate) fn new(listener: TcpListener, stop: CancellationToken) -> io::Result<Self> {
        Ok(Self {
            address: listener.local_addr()?,
            listener: Some(listener),
            backlog: Vec::new(),
            stop,
        })
    }
}

impl Listener for ClosingListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        if let Some(listener) = &mut self.listener {
            tokio::select! {
                accepted = Listener::accept(listener) => return accepted,
                () = self.stop.cancelled() => {}
            }
        }
        if let Some(listener) = self.listener.take() {
            self.backlog = close(listener).unwrap_or_default();
        }
        match self.backlog.pop() {
            Some(accepted) => accepted,
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Closes a listener, and returns the connections that waited in it.
fn close(listener: TcpListener) -> io::Result<Vec<(TcpStream, SocketAddr)>> {
    // The system may have connections that Tokio has not seen yet.
    let listener = listener.into_std()?;
    let mut backlog = Vec::new();
    while let Ok((socket, peer)) = listener.accept() {
        socket.set_nonblocking(true)?;
        backlog.push((TcpStream::from_std(socket)?, peer));
    }
    Ok(backlog)
}

/// Returns when the responses' time is up.
pub(crate) async fn overdue(stop: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}

/// Listens from this call on, so that no signal is missed before the first poll.
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
        // Without a handler the system itself ends the process at the signal, so nothing needs to be done here.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
