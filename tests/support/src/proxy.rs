//! A proxy in front of a Redis server that injects the faults of a network into connections.
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
    /// In order: FIN, then gone.
    Close,
    /// FIN, but what the client still sends is taken, and ignored.
    HalfClose,
    /// RST: the client's next read or write fails.
    Reset,
    /// Half-open: the client gets nothing. What it still sends is read, and never answered.
    Silence,
}

/// A command that a client sent, whether or not it reached the server.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When its last byte arrived.
    pub at: Instant,
    /// The command's name and its arguments.
    pub args: Vec<Vec<u8>>,
}

/// A proxy on a port of its own; it and its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    door: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// Starts a proxy that forwards to `server`, also after a restart of the server.
    pub async fn start(server: &RedisServer) -> Self {
        let listener = listen(0).await;
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let wire = Arc::new(Wire::to(server.port()));
        let door = tokio::spawn(accept(listener, Arc::clone(&wire)));
        Self {
            port: address.port(),
            wire,
            door: Mutex::new(Some(door)),
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

    /// Ends every fault but [`refuse`](Self::refuse). A connection that lost bytes in a black
    /// hole is reset, because a stream cannot go on without its middle.
    pub fn forward(&self) {
        self.wire.forward();
    }

    /// New connections go to another server, and the open ones end.
    pub fn redirect(&self, server: &RedisServer) {
        self.wire.replace(server.port());
        self.kill(End::Close);
    }

    /// From now on both directions are taken and swallowed, and nothing closes.
    pub fn black_hole(&self) {
        self.wire.change(|faults| faults.hole = Hole::Both);
    }

    /// From now on commands reach the server and its replies are swallowed.
    pub fn mute(&self) {
        self.wire.change(|faults| faults.hole = Hole::Replies);
    }

    /// Swallows the replies to the next `count` commands that match: name and arguments, as sent.
    /// Each takes its connection with it.
    pub fn drop_replies_to(
        &self,
        count: usize,
        matches: impl Fn(&[Vec<u8>]) -> bool + Send + 'static,
    ) {
        self.wire.drop_replies_to(count, Box::new(matches));
    }

    /// From now on a command that matches, by name and arguments, does not reach the server. Each
    /// takes its connection with it, once what was sent before it is answered.
    pub fn cut_before(&self, matches: impl Fn(&[Vec<u8>]) -> bool + Send + 'static) {
        self.wire.cut_before(Box::new(matches));
    }

    /// Whether Pub/Sub messages are swallowed on their way to subscribers.
    pub fn drop_messages(&self, on: bool) {
        self.wire.change(|faults| faults.drop_messages = on);
    }

    /// Whether all of Pub/Sub is swallowed, so that a subscription is never confirmed.
    pub fn drop_pushes(&self, on: bool) {
        self.wire.change(|faults| faults.drop_pushes = on);
    }

    /// How long each direction takes. Latency, not bandwidth: several commands may be in flight.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        self.wire.change(|faults| {
            faults.to_server = to_server;
            faults.to_client = to_client;
        });
    }

    /// Writes each byte of a reply by itself, or no longer.
    pub fn one_byte_replies(&self, on: bool) {
        self.wire.change(|faults| faults.one_byte_replies = on);
    }

    /// Ends the connections that are open now.
    pub fn kill(&self, end: End) {
        self.wire.kill(end);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.wire.connections()
    }

    /// Refuses new connections; the open ones stay. Holds once this has returned.
    pub async fn refuse(&self) {
        let door = self.take_door();
        if let Some(door) = door {
            door.abort();
            let _ = door.await;
            // A process that another thread is about to start has the socket until it runs.
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
        let door = tokio::spawn(accept(listener, Arc::clone(&self.wire)));
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = Some(door);
    }

    /// The commands that clients have sent, in order.
    pub fn log(&self) -> Vec<Seen> {
        self.wire.log()
    }

    /// How many commands of this name (`b"EVALSHA"`, in any case) clients have sent.
    pub fn count(&self, name: &[u8]) -> usize {
        let named = |seen: &&Seen| seen.args[0].eq_ignore_ascii_case(name);
        self.log().iter().filter(named).count()
    }

    /// Forgets the log.
    pub fn clear_log(&self) {
        self.wire.clear_log();
    }

    fn take_door(&self) -> Option<JoinHandle<()>> {
        self.door
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(door) = self.take_door() {
            door.abort();
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
