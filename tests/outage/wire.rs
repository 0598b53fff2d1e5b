//! A link that loses all packets for a while, as a firewall does: what met the hole stays silent for
//! ever, and nobody is told.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};
use testing::redis::RedisServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

#[derive(Default)]
struct State {
    hole: AtomicBool,
    /// Connections of an earlier generation are silent.
    generation: AtomicU64,
    /// How many connections met the hole.
    swallowed: AtomicU64,
}

pub(crate) struct Link {
    port: u16,
    state: Arc<State>,
}

impl Link {
    pub(crate) async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::<State>::default();
        let (shared, server) = (state.clone(), server.port());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, shared.clone()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn cut(&self) {
        self.state.generation.fetch_add(1, SeqCst);
        self.state.hole.store(true, SeqCst);
    }

    pub(crate) fn swallowed(&self) -> u64 {
        self.state.swallowed.load(SeqCst)
    }

    /// From now on new connections work.
    pub(crate) fn heal(&self) {
        self.state.generation.fetch_add(1, SeqCst);
        self.state.hole.store(false, SeqCst);
    }
}

async fn serve(client: TcpStream, server: u16, state: Arc<State>) {
    let generation = state.generation.load(SeqCst);
    let (read, write) = client.into_split();
    if state.hole.load(SeqCst) {
        state.swallowed.fetch_add(1, SeqCst);
        return swallow(read, write).await;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
        return;
    };
    let _ = server.set_nodelay(true);
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pump(read, to_server, generation, &state),
        pump(from_server, write, generation, &state)
    );
}

async fn swallow(mut read: OwnedReadHalf, _write: OwnedWriteHalf) {
    let mut bytes = [0; 4_096];
    while read.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, generation: u64, state: &State) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let passes = state.generation.load(SeqCst) == generation;
        if passes && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
