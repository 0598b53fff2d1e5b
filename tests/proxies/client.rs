//! A client that writes all of its request before it reads, as many do.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    time::Duration,
};
use testing::http_requests::ACCOUNT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long a request may take on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A response, to the end of its connection or of its length.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(": "));
        headers.find_map(|(header, value)| (header == name).then_some(value))
    }
}

/// The head of a request of this account, without the empty line at its end.
pub(crate) fn head(method: &str, path: &str, account: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: market\r\n{ACCOUNT}: {account}\r\n")
}

/// A connection of such a client.
#[derive(Debug)]
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await;
        Self(socket.expect("a server that listens"))
    }

    /// Writes text as it is.
    pub(crate) async fn write(&mut self, text: &str) -> io::Result<()> {
        let written = timeout(BOUND, self.0.write_all(text.as_bytes())).await;
        written.map_err(|_| ErrorKind::TimedOut)?
    }

    /// Writes a head and a body of this many bytes.
    pub(crate) async fn write_upload(&mut self, head: &str, bytes: usize) -> io::Result<()> {
        let head = format!("{head}content-length: {bytes}\r\n\r\n");
        self.write(&head).await?;
        let chunk = "x".repeat(bytes.min(65_536));
        let mut left = bytes;
        while left > 0 {
            let part = left.min(chunk.len());
            self.write(&chunk[..part]).await?;
            left -= part;
        }
        Ok(())
    }

    /// Reads one response.
    pub(crate) async fn read(&mut self) -> io::Result<Answer> {
        let read = timeout(BOUND, self.read_unbounded()).await;
        read.map_err(|_| ErrorKind::TimedOut)?
    }

    async fn read_unbounded(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut answer = Answer {
            status: status.ok_or(ErrorKind::InvalidData)?,
            head,
            body: String::new(),
        };
        let length = answer.header("content-length");
        let length = length.and_then(|length| length.parse().ok());
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body.resize(length, 0);
                self.0.read_exact(&mut body).await?;
            }
            None => {
                self.0.read_to_end(&mut body).await?;
            }
        }
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }
}

/// The answer to a GET on a connection for this request only.
pub(crate) async fn get(address: SocketAddr, account: &str) -> io::Result<Answer> {
    let mut client = Client::connect(address).await;
    let head = head("GET", "/", account);
    client
        .write(&format!("{head}connection: close\r\n\r\n"))
        .await?;
    client.read().await
}

/// The answer to a POST of this many bytes on a connection for this request only.
pub(crate) async fn upload(address: SocketAddr, account: &str, bytes: usize) -> io::Result<Answer> {
    let mut client = Client::connect(address).await;
    client
        .write_upload(&head("POST", "/", account), bytes)
        .await?;
    client.read().await
}
