//! A client of `/market/socket`.

use crate::{process::Market, soon};
use futures_util::StreamExt;
use http::Response;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};

/// An open socket. It reads and answers only while a method waits for a message. Dropping it closes the connection
/// without a close frame.
pub(crate) struct Socket(WebSocketStream<TcpStream>);

fn url(market: &Market, account: &str) -> String {
    let address = market.url().replacen("http", "ws", 1);
    format!("{address}/market/socket?account={account}")
}

impl Socket {
    /// Opens a socket. Returns the market's response if it refuses the handshake.
    pub(crate) async fn try_open(
        market: &Market,
        account: &str,
    ) -> Result<Self, Response<Option<Vec<u8>>>> {
        let request = url(market, account).into_client_request();
        let address = market.url().strip_prefix("http://").expect("a URL");
        let stream = TcpStream::connect(address).await.expect("a market");
        let handshake = client_async(request.expect("a URL"), stream);
        match soon("a handshake", handshake).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => Err(*response),
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    pub(crate) async fn open(market: &Market, account: &str) -> Self {
        let socket = Self::try_open(market, account).await;
        socket.unwrap_or_else(|answer| panic!("refused with {}", answer.status()))
    }

    pub(crate) async fn several(market: &Market, account: &str, count: usize) -> Vec<Self> {
        let mut sockets = Vec::new();
        for _ in 0..count {
            sockets.push(Self::open(market, account).await);
        }
        sockets
    }

    /// The underlying TCP connection.
    pub(crate) fn connection(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// The next message other than a ping, or `None` if the connection breaks off. Pings are answered.
    async fn next(&mut self) -> Option<Message> {
        let message = async {
            loop {
                match self.0.next().await?.ok()? {
                    Message::Ping(_) => {}
                    message => return Some(message),
                }
            }
        };
        soon("a message", message).await
    }

    pub(crate) async fn event(&mut self) -> Value {
        let message = self.next().await.expect("the socket is open");
        let text = message.to_text().expect("an event is text");
        text.parse().expect("an event is JSON")
    }

    /// Waits until the market closes the socket. Returns the code and the reason of its close frame.
    pub(crate) async fn wait_until_closed(mut self) -> (u16, String) {
        match self.next().await {
            Some(Message::Close(Some(frame))) => (frame.code.into(), frame.reason.to_string()),
            other => panic!("not closed: {other:?}"),
        }
    }

    /// Closes the socket, and waits until the market has closed it too.
    pub(crate) async fn close(mut self) {
        self.0.close(None).await.expect("it is open");
        while self.next().await.is_some() {}
    }

    /// Answers pings forever. Panics when the market closes the socket.
    pub(crate) async fn answer_pings(&mut self) {
        while let Some(Ok(Message::Ping(_))) = self.0.next().await {}
        panic!("the market closed the socket");
    }
}
