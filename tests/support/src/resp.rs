//! A plain client that speaks RESP over a socket: the oracle for the real contents of Redis.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub use super::frame::Reply;
use super::frame::{self, Frames};

/// Longer than any server takes to answer, so that a test that waits in vain fails instead of hanging.
const BOUND: Duration = Duration::from_secs(60);

/// A connection that sends one command at a time.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    frames: Frames,
}

impl Raw {
    /// Connects to a port of this machine.
    ///
    /// # Panics
    ///
    /// If nothing listens on the port.
    pub async fn connect(port: u16) -> Self {
        let raw = Self::try_connect(port).await;
        raw.expect("something listens on the port")
    }

    /// Connects to a port of this machine, and returns failures.
    ///
    /// # Errors
    ///
    /// If nothing listens on the port, or nothing answers within a minute.
    pub async fn try_connect(port: u16) -> io::Result<Self> {
        let stream = timeout(BOUND, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
        let stream = stream.map_err(|_| ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            frames: Frames::default(),
        })
    }

    /// Sends one command and returns its reply, which may be a [`Reply::Error`].
    ///
    /// # Panics
    ///
    /// If the connection ends before the reply.
    pub async fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_cmd(args).await.expect("the server answers")
    }

    /// Sends one command and returns its reply.
    ///
    /// # Errors
    ///
    /// If the connection ends before the reply.
    pub async fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args).await?;
        self.next().await
    }

    /// Sends one command and leaves its reply to [`next`](Self::next).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        self.stream.write_all(&frame::command(args)).await
    }

    /// Reads the next frame: a reply, or a message after `SUBSCRIBE`.
    ///
    /// # Errors
    ///
    /// If the connection ends first, or nothing arrives within a minute.
    pub async fn next(&mut self) -> io::Result<Reply> {
        let frame = timeout(BOUND, self.frames.next(&mut self.stream)).await;
        let frame = frame.map_err(|_| ErrorKind::TimedOut)??;
        frame
            .map(|frame| frame.value)
            .ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// How often each command ran, including commands of scripts, since the start or
    /// [`reset_stats`](Self::reset_stats).
    pub async fn commandstats(&mut self) -> BTreeMap<String, u64> {
        let info = self.cmd(&["INFO", "commandstats"]).await;
        info.text().lines().filter_map(command_and_calls).collect()
    }

    /// Resets the counts of [`commandstats`](Self::commandstats).
    pub async fn reset_stats(&mut self) {
        let reply = self.cmd(&["CONFIG", "RESETSTAT"]).await;
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }

    /// The microseconds that the server has spent on `EVALSHA` since the start or [`reset_stats`](Self::reset_stats).
    ///
    /// # Panics
    ///
    /// If no script has run.
    pub async fn script_micros(&mut self) -> f64 {
        let info = self.cmd(&["INFO", "commandstats"]).await;
        let micros = info.text().lines().find_map(|line| {
            let (_, stats) = line.strip_prefix("cmdstat_evalsha:")?.split_once("usec=")?;
            stats.split(',').next()?.parse().ok()
        });
        micros.expect("a script has run")
    }

    /// A number of `INFO stats`, such as `total_connections_received`.
    ///
    /// # Panics
    ///
    /// If the server does not report it.
    pub async fn stat(&mut self, name: &str) -> u64 {
        let info = self.cmd(&["INFO", "stats"]).await;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok();
        let number = info.text().lines().find_map(value);
        number.expect("the server reports it")
    }

    /// The number of members of a sorted set. Reading all members may stall the server.
    pub async fn zcard(&mut self, key: impl AsRef<[u8]>) -> usize {
        let command: [&[u8]; 2] = [b"ZCARD", key.as_ref()];
        self.cmd(&command).await.int() as usize
    }

    /// The members of a sorted set with their scores, lowest first. Empty for a missing key.
    pub async fn zmembers(&mut self, key: impl AsRef<[u8]>) -> Vec<(Vec<u8>, f64)> {
        let command: [&[u8]; 5] = [b"ZRANGE", key.as_ref(), b"0", b"-1", b"WITHSCORES"];
        let reply = self.cmd(&command).await;
        reply.array().chunks(2).map(member_and_score).collect()
    }

    /// The keys that match a glob pattern, sorted.
    pub async fn keys(&mut self, pattern: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
        let reply = self.cmd(&[b"KEYS", pattern.as_ref()]).await;
        let mut keys: Vec<_> = reply
            .array()
            .iter()
            .map(|key| key.bytes().to_vec())
            .collect();
        keys.sort();
        keys
    }

    /// The server's clock in milliseconds since 1970.
    pub async fn server_time_ms(&mut self) -> i64 {
        let reply = self.cmd(&["TIME"]).await;
        reply.array()[0].int() * 1000 + reply.array()[1].int() / 1000
    }
}

/// Parses `cmdstat_zadd:calls=2,usec=…` as `("zadd", 2)`.
fn command_and_calls(entry: &str) -> Option<(String, u64)> {
    let (command, stats) = entry.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let calls = stats.split(',').next()?.parse().ok()?;
    Some((command.to_owned(), calls))
}

/// A member of a sorted set, and its score.
fn member_and_score(pair: &[Reply]) -> (Vec<u8>, f64) {
    let score = pair[1].text().parse().expect("a score is a number");
    (pair[0].bytes().to_vec(), score)
}
