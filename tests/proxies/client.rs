//! An HTTP/1.1 client that controls when it writes and when it reads.

use std::{
    future::{Future, pending},
    io::{self, ErrorKind},
    net::SocketAddr,
    time::Duration,
};
use testing::http_requests::ACCOUNT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// The longest time for anything here, even on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// An account that is always at its limit.
pub(crate) const FULL: &str = "full";

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The status line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The way in which a request announces the length of its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    Length,
    Chunked,
}

/// A client with one connection.
#[derive(Debug)]
pub(crate) struct Client {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
}

impl Answer {
    fn new(head: &[u8]) -> io::Result<Self> {
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Self {
            status: status.ok_or(ErrorKind::InvalidData)?,
            head,
            body: String::new(),
        })
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(": "));
        headers.find_map(|(header, value)| (header == name).then_some(value))
    }
}

impl Client {
    /// Connects with a small buffer, so that the system cannot take a large upload that the server does not read.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let is_set = socket.set_send_buffer_size(16_384);
        is_set.expect("a new socket");
        let socket = socket.connect(address).await;
        let (reader, writer) = socket.expect("a server that listens").into_split();
        Self { reader, writer }
    }

    /// Writes text unchanged.
    pub(crate) async fn write(&mut self, text: &str) -> io::Result<()> {
        soon(write(&mut self.writer, text)).await
    }

    /// Writes the last header and the body of a request. The body has this number of bytes.
    pub(crate) async fn write_body(&mut self, framing: Framing, bytes: usize) -> io::Result<()> {
        soon(write_body(&mut self.writer, framing, bytes)).await
    }

    /// Writes an upload of the full account.
    pub(crate) async fn write_upload(&mut self, framing: Framing, bytes: usize) -> io::Result<()> {
        self.write(&head("POST", "/", FULL)).await?;
        self.write_body(framing, bytes).await
    }

    /// Writes an upload of the full account, and reads while it does so. Returns the response when it is whole.
    pub(crate) async fn upload(&mut self, framing: Framing, bytes: usize) -> io::Result<Answer> {
        self.write(&head("POST", "/", FULL)).await?;
        let write = async {
            // Only the response matters, so a failed write is ignored.
            let _ = write_body(&mut self.writer, framing, bytes).await;
            pending().await
        };
        tokio::select! {
            answer = soon(read(&mut self.reader)) => answer,
            never = write => never,
        }
    }

    /// Reads the next response.
    pub(crate) async fn read(&mut self) -> io::Result<Answer> {
        soon(read(&mut self.reader)).await
    }

    /// Reads the head of the next response.
    pub(crate) async fn read_head(&mut self) -> io::Result<Answer> {
        soon(read_head(&mut self.reader)).await
    }

    /// Reads this many bytes of a body.
    #[cfg(feature = "redis")]
    pub(crate) async fn read_some(&mut self, bytes: usize) -> io::Result<()> {
        let mut body = vec![0; bytes];
        soon(self.reader.read_exact(&mut body)).await?;
        Ok(())
    }

    /// Reads until the connection ends, or breaks.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut rest = Vec::new();
        let read = timeout(BOUND, self.reader.read_to_end(&mut rest)).await;
        drop(read.expect("it ends in time"));
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// True if the connection ends without another byte.
    pub(crate) async fn ends_without_data(&mut self) -> bool {
        let read = timeout(BOUND, self.reader.read_u8()).await;
        read.expect("it ends or goes on in time").is_err()
    }
}

async fn soon<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(BOUND, operation).await;
    done.map_err(|_| ErrorKind::TimedOut)?
}

async fn write(writer: &mut OwnedWriteHalf, text: &str) -> io::Result<()> {
    writer.write_all(text.as_bytes()).await
}

async fn write_body(writer: &mut OwnedWriteHalf, framing: Framing, bytes: usize) -> io::Result<()> {
    let header = match framing {
        Framing::Length => format!("content-length: {bytes}\r\n\r\n"),
        Framing::Chunked => "transfer-encoding: chunked\r\n\r\n".to_owned(),
    };
    write(writer, &header).await?;
    let data = "x".repeat(bytes.min(65_536));
    let mut remaining = bytes;
    while remaining > 0 {
        let part = &data[..remaining.min(data.len())];
        remaining -= part.len();
        match framing {
            Framing::Length => write(writer, part).await?,
            Framing::Chunked => write(writer, &format!("{:x}\r\n{part}\r\n", part.len())).await?,
        }
    }
    match framing {
        Framing::Length => Ok(()),
        Framing::Chunked => write(writer, "0\r\n\r\n").await,
    }
}

async fn read_head(reader: &mut OwnedReadHalf) -> io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(reader.read_u8().await?);
    }
    Answer::new(&head)
}

/// Reads a response whose body has a length, or ends with its connection. A response with status 204 has none.
async fn read(reader: &mut OwnedReadHalf) -> io::Result<Answer> {
    let mut answer = read_head(reader).await?;
    let length = answer.header("content-length");
    let length = length.and_then(|length| length.parse().ok());
    let length = length.or((answer.status == 204).then_some(0));
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body).await?;
        }
        None => {
            reader.read_to_end(&mut body).await?;
        }
    }
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Ok(answer)
}

/// The head of a request of this account, without the empty line at its end.
pub(crate) fn head(method: &str, path: &str, account: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: market\r\n{ACCOUNT}: {account}\r\n")
}

/// Sends a request on a separate connection. `head` is without the empty line at its end.
pub(crate) async fn send(address: SocketAddr, head: &str) -> io::Result<Answer> {
    let mut client = Client::connect(address).await;
    let text = format!("{head}connection: close\r\n\r\n");
    client.write(&text).await?;
    client.read().await
}

/// Sends a GET of this account on a separate connection.
pub(crate) async fn get(address: SocketAddr, account: &str) -> io::Result<Answer> {
    send(address, &head("GET", "/", account)).await
}

/// Sends an upload of the full account on a separate connection, and reads the answer after the whole upload.
pub(crate) async fn upload(
    address: SocketAddr,
    framing: Framing,
    bytes: usize,
) -> io::Result<Answer> {
    let mut client = Client::connect(address).await;
    client.write_upload(framing, bytes).await?;
    client.read().await
}
