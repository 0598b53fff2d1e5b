//! One connection through a proxy: a reader and a writer for each direction.

use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use super::super::frame::{Frame, Frames};
use super::End;
use super::link::{Fate, Link};
use super::wire::Wire;

/// The two ends of a channel of frames on their way, each with the time at which it is due.
type Queue = mpsc::UnboundedSender<(Instant, Frame)>;
type Due = mpsc::UnboundedReceiver<(Instant, Frame)>;

/// Relays one client's connection until a peer or the proxy ends it.
pub(super) async fn serve(
    mut client: TcpStream,
    mut ends: broadcast::Receiver<End>,
    wire: Arc<Wire>,
) {
    let link = Link::new(wire);
    let end = tokio::select! {
        biased;
        end = ends.recv() => end.unwrap_or(End::Close),
        () = link.until_healed_with_a_gap() => End::Reset,
        end = relay(&mut client, &link) => end.unwrap_or(End::Reset),
    };
    tokio::select! {
        () = finish(client, end) => {}
        _ = ends.recv() => {}
    }
}

async fn finish(mut client: TcpStream, end: End) {
    // The client may have closed first, and then nothing is left to end.
    let _ = match end {
        End::Close => client.shutdown().await,
        End::HalfClose => half_close(&mut client).await,
        End::Reset => client.set_zero_linger(),
        End::Silence => copy(&mut client, &mut sink()).await.map(drop),
    };
}

async fn half_close(client: &mut TcpStream) -> io::Result<()> {
    client.shutdown().await?;
    copy(client, &mut sink()).await.map(drop)
}

async fn relay(client: &mut TcpStream, link: &Link) -> io::Result<End> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, link.wire.server())).await;
    let end = match server {
        Ok(mut server) => both_ways(client, &mut server, link).await,
        Err(error) => Err(error),
    };
    // A black hole also hides that the server is gone.
    link.wire.until_no_hole_and(|| true).await;
    end
}

async fn both_ways(client: &mut TcpStream, server: &mut TcpStream, link: &Link) -> io::Result<End> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        end = to_the_server(from_client, to_server, link) => end,
        end = to_the_client(from_server, to_client, link) => end,
    }
}

async fn to_the_server(from: ReadHalf<'_>, mut to: WriteHalf<'_>, link: &Link) -> io::Result<End> {
    let (queue, due) = mpsc::unbounded_channel();
    let read = read(
        from,
        queue,
        Link::command,
        |wire| wire.faults().to_server,
        link,
    );
    tokio::try_join!(read, write(due, &mut to, |_| false, link))?;
    to.shutdown().await?;
    // A client that has closed its half still gets replies.
    pending().await
}

async fn to_the_client(from: ReadHalf<'_>, mut to: WriteHalf<'_>, link: &Link) -> io::Result<End> {
    let (queue, due) = mpsc::unbounded_channel();
    let read = read(
        from,
        queue,
        Link::reply,
        |wire| wire.faults().to_client,
        link,
    );
    let is_split = |wire: &Wire| wire.faults().one_byte_replies;
    tokio::try_join!(read, write(due, &mut to, is_split, link))?;
    Ok(End::Close)
}

/// Reads frames, and queues those that pass.
async fn read(
    mut from: ReadHalf<'_>,
    queue: Queue,
    fate: fn(&Link, &Frame) -> Fate,
    delay: fn(&Wire) -> Duration,
    link: &Link,
) -> io::Result<()> {
    let mut frames = Frames::default();
    while let Some(frame) = frames.next(&mut from).await? {
        match fate(link, &frame) {
            Fate::Swallow => {}
            Fate::Cut => break,
            // A writer that has failed ends this reader too.
            Fate::Pass => drop(queue.send((Instant::now() + delay(&link.wire), frame))),
        }
    }
    Ok(())
}

/// Writes frames when they are due. If `is_split` returns true, it writes each byte separately.
async fn write(
    mut due: Due,
    to: &mut WriteHalf<'_>,
    is_split: fn(&Wire) -> bool,
    link: &Link,
) -> io::Result<()> {
    while let Some((when, frame)) = due.recv().await {
        if when > Instant::now() {
            sleep_until(when).await;
        }
        if is_split(&link.wire) {
            write_one_by_one(&frame.bytes, to).await?;
        } else {
            to.write_all(&frame.bytes).await?;
        }
    }
    Ok(())
}

async fn write_one_by_one(bytes: &[u8], to: &mut WriteHalf<'_>) -> io::Result<()> {
    for byte in bytes {
        to.write_all(&[*byte]).await?;
        // Lets the peer read this byte before the next one joins it.
        tokio::task::yield_now().await;
    }
    Ok(())
}
