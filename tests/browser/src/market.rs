//! A market that runs as a child process, and clients of it that are not browsers.

use crate::browser::BOUND;
use serde_json::Value;
use std::process::Stdio;
use testing::{example, wait::within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Child,
};

/// A running market. Dropping it kills the process.
pub struct Market {
    child: Child,
    url: String,
}

impl Market {
    /// Starts a market with these settings, on a free port unless they name one.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let mut command = example::command("market", &[&[("PORT", "0")], settings].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the market starts");
        let url = example::address(&mut child).await;
        Self { child, url }
    }

    /// The URL of the page that watches this account.
    pub fn page(&self, account: &str) -> String {
        format!("{}/?account={account}", self.url)
    }

    /// The market's address, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Sends a request without a body and does not read the answer. Dropping the socket closes the connection.
    pub async fn send(&self, method: &str, target: &str) -> TcpStream {
        self.request(&format!("{method} {target} HTTP/1.1"), "")
            .await
    }

    /// Sends a POST with a JSON body and does not read the answer.
    pub async fn post(&self, target: &str, json: &str) -> TcpStream {
        let (kind, length) = ("content-type: application/json", json.len());
        let fields = format!("{kind}\r\ncontent-length: {length}\r\n\r\n{json}");
        self.request(&format!("POST {target} HTTP/1.1"), &fields)
            .await
    }

    async fn request(&self, line: &str, rest: &str) -> TcpStream {
        let host = self.url.strip_prefix("http://").expect("it is HTTP");
        let mut socket = TcpStream::connect(host).await.expect("it listens");
        let rest = if rest.is_empty() { "\r\n" } else { rest };
        let request = format!("{line}\r\nhost: {host}\r\n{rest}");
        socket
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        socket
    }
}

/// Reads the status of the answer.
pub async fn status(socket: &mut TcpStream) -> u16 {
    let mut line = [0; "HTTP/1.1 200".len()];
    let read = within("an answer", BOUND, socket.read_exact(&mut line));
    read.await.expect("an answer");
    let line = str::from_utf8(&line).expect("text");
    line[line.len() - 3..].parse().expect("a status")
}

/// Reads the JSON of the answer, whatever its status.
pub async fn json(socket: &mut TcpStream) -> Value {
    let mut text = Vec::new();
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((_, body)) = whole.split_once("\r\n\r\n")
            && let Ok(json) = body.parse()
        {
            return json;
        }
        let read = within("the rest of an answer", BOUND, socket.read_buf(&mut text));
        let read = read.await.expect("an answer");
        assert!(read > 0, "no JSON: {whole}");
    }
}
