//! Market events over a WebSocket.

use crate::{app::App, market::Event, problem::Problem};
use axum::{
    Extension,
    extract::{
        State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    response::Response,
};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{BoxStream, SplitSink, SplitStream},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tower_semaphore::Permit;

/// How long a client may leave pings unanswered, by default.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// How long a client may take to answer the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Clients have no need to send messages, so a small bound is enough.
const MAX_MESSAGE: usize = 4 * 1_024;

/// The size of the buffer in which our pongs wait for a client that sends pings but does not read.
const MAX_UNREAD: usize = 256 * 1_024;

/// The open sockets, and how long their clients may be silent.
#[derive(Clone)]
pub(crate) struct Sockets {
    open: TaskTracker,
    max_silence: Duration,
}

impl Sockets {
    pub(crate) fn new(max_silence: Option<Duration>) -> Self {
        Self {
            open: TaskTracker::new(),
            max_silence: max_silence.unwrap_or(MAX_SILENCE),
        }
    }

    /// Waits until all sockets are closed. The server itself does not wait for them, because to it a connection has
    /// ended when it becomes a socket.
    pub(crate) async fn closed(&self) {
        self.open.close();
        self.open.wait().await;
    }
}

/// `GET /market/socket`: listings and trades from now on, each as a JSON message.
///
/// The response to the handshake has no body, so the socket holds the permit. It is released when the client closes the
/// socket or vanishes, when the permit is lost, or when the server stops.
pub(crate) async fn open(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let session = Session {
        events: app.market.events(),
        _open: app.sockets.open.token(),
        permit,
        app,
    };
    // The frame size is bounded too, because a whole frame is read before its message is checked.
    let upgrade = upgrade?
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .max_write_buffer_size(MAX_UNREAD);
    Ok(upgrade.on_upgrade(|socket| session.run(socket)))
}

/// An open socket. Dropping it releases the permit, even in a panic.
struct Session {
    /// Keeps the market alive, and with it the events: the server drops its own handle when it stops.
    app: App,
    events: BoxStream<'static, Event>,
    permit: Permit,
    _open: TaskTrackerToken,
}

type Sender = SplitSink<WebSocket, Message>;
type Receiver = SplitStream<WebSocket>;

impl Session {
    async fn run(mut self, socket: WebSocket) {
        let (mut sender, mut receiver) = socket.split();
        let (permit, stop) = (self.permit.clone(), self.app.stop.clone());
        let max_silence = self.app.sockets.max_silence;
        let close = tokio::select! {
            () = wait_until_gone(&mut receiver, max_silence) => None,
            close = self.send_events(&mut sender) => close,
            () = permit.lost() => Some(close_frame(close_code::AGAIN, "the permit was lost")),
            () = stop.cancelled() => Some(close_frame(close_code::AWAY, "the market stops")),
        };
        if let Some(close) = close {
            // The socket is closed even if the client does not answer.
            let _ = timeout(CLOSE_TIMEOUT, close_socket(sender, receiver, close)).await;
        }
    }

    /// Sends events, and pings in between. Returns the frame with which to close the socket, or `None` if the client is
    /// gone.
    async fn send_events(&mut self, sender: &mut Sender) -> Option<CloseFrame> {
        let period = self.app.sockets.max_silence / 3;
        let mut pings = interval_at(Instant::now() + period, period);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                event = self.events.next() => match event {
                    Some(event) => Message::text(json!(event).to_string()),
                    None => return Some(close_frame(close_code::AGAIN, "too many events are unread")),
                },
                _ = pings.tick() => Message::Ping(Bytes::new()),
            };
            sender.send(message).await.ok()?;
        }
    }
}

/// Returns when the client has closed the socket or stopped reading. A client whose machine or network has vanished
/// closes nothing, so only an unanswered ping shows that it is gone. Its other messages do not prove that it reads.
/// Reading here also answers the client's own pings.
async fn wait_until_gone(receiver: &mut Receiver, max_silence: Duration) {
    while let Ok(true) = timeout(max_silence, reads_pong(receiver)).await {}
}

/// Returns true once the client has answered a ping, or false once the socket has ended.
async fn reads_pong(receiver: &mut Receiver) -> bool {
    while let Some(Ok(message)) = receiver.next().await {
        if matches!(message, Message::Pong(_)) {
            return true;
        }
    }
    false
}

fn close_frame(code: u16, reason: &'static str) -> CloseFrame {
    let reason = reason.into();
    CloseFrame { code, reason }
}

/// Closes the socket, and reads until the client has closed it too. Otherwise an unread message would turn the end of
/// the connection into a reset, which may overtake the close frame.
async fn close_socket(mut sender: Sender, mut receiver: Receiver, close: CloseFrame) {
    if sender.send(Message::Close(Some(close))).await.is_ok() {
        while let Some(Ok(_)) = receiver.next().await {}
    }
}
