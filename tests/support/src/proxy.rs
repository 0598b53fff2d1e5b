//! A proxy in front of a Redis server that injects network faults into connections.
//!
//! The proxy reads both directions as RESP frames, so it never cuts within a frame, except in
//! single-byte mode.

mod connection;
mod link;
mod wire;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::wire::{Hole, Wire};
use super::redis::RedisServer;

/// How a connection to a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// An orderly close: a FIN, and then the connection is gone.
    Close,
    /// A FIN to the client. The proxy still reads and discards the client's data.
    HalfClose,
    /// A RST. The client's next read or write fails.
    Reset,
    /// Half-open: the client receives nothing. The proxy reads its data and never answers.
    Silence,
}

/// A command that a client sent, even if it did not reach the server.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The time at which its last byte arrived.
    pub at: Instant,
    /// The command's name and its arguments.
    pub args: Vec<Vec<u8>>,
}

/// A proxy on a separate port. The proxy and its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    /// The task that accepts connections; `None` while they are refused.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// Starts a proxy that forwards to `server`, even after a restart of the server.
    pub async fn start(server: &RedisServer) -> Self {
        let listener = listen(0).await;
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let wire = Arc::new(Wire::to(server.port()));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&wire)));
        Self {
            port: address.port(),
            wire,
            accepting: Mutex::new(Some(accepting)),
        }
    }

    /// `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends every fault except [`refuse`](Self::refuse). A connection that lost bytes in a black hole is reset, because
    /// a stream cannot continue with a gap.
    pub fn forward(&self) {
        self.wire.forward();
    }

    /// Sends new connections to another server, and ends the open ones.
    pub fn redirect(&self, server: &RedisServer) {
        self.wire.replace(server.port());
        self.kill(End::Close);
    }

    /// Swallows the data of both directions from now on. Nothing closes.
    pub fn black_hole(&self) {
        self.wire.change(|faults| faults.hole = Hole::Both);
    }

    /// Swallows the server's replies from now on, while commands still reach the server.
    pub fn mute(&self) {
        self.wire.change(|faults| faults.hole = Hole::Replies);
    }

    /// Swallows the replies to the next `count` matching commands, by name and arguments as sent. Each of them ends its
    /// connection.
    pub fn drop_replies_to(
        &self,
        count: usize,
        matches: impl Fn(&[Vec<u8>]) -> bool + Send + 'static,
    ) {
        self.wire.drop_replies_to(count, Box::new(matches));
    }

    /// Withholds matching commands from the server from now on, by name and arguments. Each of them ends its
    /// connection, once earlier commands are answered.
    pub fn cut_before(&self, matches: impl Fn(&[Vec<u8>]) -> bool + Send + 'static) {
        self.wire.cut_before(Box::new(matches));
    }

    /// With `true`, swallows Pub/Sub messages on their way to subscribers from now on.
    pub fn drop_messages(&self, on: bool) {
        self.wire.change(|faults| faults.drop_messages = on);
    }

    /// With `true`, swallows all Pub/Sub frames from now on, so that a subscription is never confirmed.
    pub fn drop_pushes(&self, on: bool) {
        self.wire.change(|faults| faults.drop_pushes = on);
    }

    /// Sets the latency of each direction. Bandwidth is not limited: several commands may be in flight.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        self.wire.change(|faults| {
            faults.to_server = to_server;
            faults.to_client = to_client;
        });
    }

    /// With `true`, writes each byte of a reply separately from now on.
    pub fn one_byte_replies(&self, on: bool) {
        self.wire.change(|faults| faults.one_byte_replies = on);
    }

    /// Ends the connections that are open now.
    pub fn kill(&self, end: End) {
        self.wire.kill(end);
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.wire.connections()
    }

    /// Refuses new connections and keeps the open ones. In effect once this function has returned.
    pub async fn refuse(&self) {
        let accepting = self.take_accepting();
        if let Some(accepting) = accepting {
            accepting.abort();
            let _ = accepting.await;
            // Another thread that starts a process may keep the socket open until the process runs.
            while TcpStream::connect(self.address()).await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn address(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::LOCALHOST, self.port)
    }

    /// Accepts connections again after [`refuse`](Self::refuse).
    pub async fn accept(&self) {
        self.refuse().await;
        let listener = listen(self.port).await;
        let accepting = tokio::spawn(accept(listener, Arc::clone(&self.wire)));
        *self
            .accepting
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(accepting);
    }

    /// The commands that clients have sent, in order.
    pub fn log(&self) -> Vec<Seen> {
        self.wire.log()
    }

    /// The number of commands with this name that clients have sent: `b"EVALSHA"`, in any case.
    pub fn count(&self, name: &[u8]) -> usize {
        let named = |seen: &&Seen| seen.args[0].eq_ignore_ascii_case(name);
        self.log().iter().filter(named).count()
    }

    /// Clears the log.
    pub fn clear_log(&self) {
        self.wire.clear_log();
    }

    fn take_accepting(&self) -> Option<JoinHandle<()>> {
        self.accepting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = self.take_accepting() {
            accepting.abort();
        }
        self.kill(End::Close);
    }
}

async fn listen(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .expect("the port is free")
}

async fn accept(listener: TcpListener, wire: Arc<Wire>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connection::serve(
            client,
            wire.subscribe(),
            Arc::clone(&wire),
        ));
    }
}
