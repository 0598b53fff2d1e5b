//! A machine's address on the network. Connections to the address reach a server while the machine is up. Data on its
//! way is lost when the machine goes down.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

/// A port that forwards to a server. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Front {
    port: u16,
    target: watch::Sender<Target>,
    lag: Lag,
    accepting: JoinHandle<()>,
}

/// The extra delay of data for replicas, in microseconds.
type Lag = Arc<AtomicU64>;

/// The port of the server, or `None` while the machine is down. Each change ends all connections.
type Target = Option<u16>;

impl Front {
    /// Opens a port. Data from a server to its replicas takes `lag` longer.
    pub async fn open(lag: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has one");
        let target = watch::Sender::new(None);
        let lag: Lag = Arc::new(AtomicU64::new(lag.as_micros() as u64));
        Self {
            port: address.port(),
            accepting: tokio::spawn(accept(listener, target.clone(), Arc::clone(&lag))),
            target,
            lag,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forwards to the server on this port from now on.
    pub fn point_at(&self, port: u16) {
        self.target.send_replace(Some(port));
    }

    /// Sets the extra delay of data from a server to its replicas.
    pub fn set_lag(&self, lag: Duration) {
        self.lag.store(lag.as_micros() as u64, Ordering::Relaxed);
    }

    /// Ends all connections, loses the data on its way, and accepts no new connections.
    pub fn cut(&self) {
        self.target.send_replace(None);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: watch::Sender<Target>, lag: Lag) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(client, target.subscribe(), Arc::clone(&lag)));
    }
}

async fn serve(client: TcpStream, mut target: watch::Receiver<Target>, lag: Lag) {
    let Some(port) = *target.borrow_and_update() else {
        return;
    };
    tokio::select! {
        biased;
        _ = target.changed() => {}
        () = forward(client, port, &lag) => {}
    }
}

async fn forward(client: TcpStream, port: u16, lag: &AtomicU64) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return;
    };
    // Without this option, small packets wait for each other. Setting it fails if the socket has ended.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let is_replica = Arc::new(AtomicBool::new(false));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (chunks, delayed) = mpsc::unbounded_channel();
    tokio::select! {
        () = requests(from_client, to_server, &is_replica) => {}
        () = replies(from_server, chunks, &is_replica, lag) => {}
        () = deliver(delayed, to_client) => {}
    }
}

/// Forwards the client's data. Sets `is_replica` if the client is a replica.
async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_replica: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let chunk = &buffer[..count];
        if chunk.windows(5).any(|word| word == b"PSYNC") {
            is_replica.store(true, Ordering::Relaxed);
        }
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}

/// Bytes, with the time at which they arrive.
type Chunk = (Instant, Vec<u8>);

async fn replies(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Chunk>,
    is_replica: &AtomicBool,
    lag: &AtomicU64,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let lag = match is_replica.load(Ordering::Relaxed) {
            true => Duration::from_micros(lag.load(Ordering::Relaxed)),
            false => Duration::ZERO,
        };
        let chunk = buffer[..count].to_vec();
        if to.send((Instant::now() + lag, chunk)).is_err() {
            return;
        }
    }
}

async fn deliver(mut from: mpsc::UnboundedReceiver<Chunk>, mut to: OwnedWriteHalf) {
    while let Some((at, chunk)) = from.recv().await {
        if at > Instant::now() {
            sleep_until(at).await;
        }
        if to.write_all(&chunk).await.is_err() {
            return;
        }
    }
}
