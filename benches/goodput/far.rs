//! A link with a delay: a separate thread forwards chunks of bytes when they are due.
//!
//! The tests' proxy parses frames and keeps a log, so it would be the bottleneck here.

use bytes::{Bytes, BytesMut};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc as std_mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Builder,
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

/// The largest number of bytes read at once.
const CHUNK: usize = 64 * 1024;

/// The largest backlog of connections that systems usually allow.
const BACKLOG: u32 = 4_096;

/// A link to a port of this machine. It ends when it is dropped.
pub(crate) struct Far {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Far {
    /// Starts forwarding to `server`, with this delay in each direction.
    pub(crate) fn to(server: u16, delay: Duration) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (port, bound) = std_mpsc::channel();
        let thread = thread::spawn(move || run(server, delay, &port, stopped));
        Self {
            port: bound.recv().expect("the thread sends its port"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The link's URL, as `redis://127.0.0.1:PORT/`.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the link does not panic");
        }
    }
}

fn run(server: u16, delay: Duration, port: &std_mpsc::Sender<u16>, stopped: oneshot::Receiver<()>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let listener = listen().expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        port.send(address.port()).expect("the starter waits for it");
        tokio::select! {
            () = accept(listener, server, delay) => {}
            _ = stopped => {}
        }
    });
}

fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, server: u16, delay: Duration) {
    while let Ok((client, _)) = listener.accept().await {
        // A broken connection ends for both sides, without an error.
        tokio::spawn(async move { relay(client, server, delay).await.ok() });
    }
}

async fn relay(client: TcpStream, server: u16, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        forward(from_client, to_server, delay),
        forward(from_server, to_client, delay)
    )?;
    Ok(())
}

async fn forward(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let (send, due) = mpsc::unbounded_channel();
    tokio::try_join!(read(from, send, delay), write(due, to))?;
    Ok(())
}

async fn read(
    mut from: OwnedReadHalf,
    send: mpsc::UnboundedSender<(Instant, Bytes)>,
    delay: Duration,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        // If the writer has failed, this reader ends as well.
        let _ = send.send((Instant::now() + delay, buffer.split().freeze()));
    }
}

async fn write(
    mut due: mpsc::UnboundedReceiver<(Instant, Bytes)>,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    while let Some((when, bytes)) = due.recv().await {
        if when > Instant::now() {
            sleep_until(when).await;
        }
        to.write_all(&bytes).await?;
    }
    to.shutdown().await
}
