//! A machine's address on the network: connections to it reach a server, as long as the machine is
//! there. What is on its way when the machine goes is lost.

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
    door: JoinHandle<()>,
}

/// How much longer what is for replicas takes, in microseconds.
type Lag = Arc<AtomicU64>;

/// The port of the server. Each change ends all connections.
type Target = Option<u16>;

impl Front {
    /// Opens a port. What a server sends to its replicas takes `lag` longer.
    pub async fn open(lag: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has one");
        let target = watch::Sender::new(None);
        let lag: Lag = Arc::new(AtomicU64::new(lag.as_micros() as u64));
        Self {
            port: address.port(),
            door: tokio::spawn(accept(listener, target.clone(), Arc::clone(&lag))),
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

    /// From now on what a server sends to its replicas takes this much longer.
    pub fn set_lag(&self, lag: Duration) {
        self.lag.store(lag.as_micros() as u64, Ordering::Relaxed);
    }

    /// Ends all connections, with what is on its way in them, and takes no more.
    pub fn cut(&self) {
        self.target.send_replace(None);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.cut();
        self.door.abort();
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
    // Without it small packets wait for each other. A socket that has ended has none.
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

/// Passes on what the client sends, and notes whether it is a replica.
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

/// Bytes, and when they arrive.
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
