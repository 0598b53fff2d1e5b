//! What happens, as it happens: a WebSocket.

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

/// How long a client may leave pings unanswered, unless a setting says so.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// How long a client has to answer that the socket closes.
const FAREWELL: Duration = Duration::from_secs(1);

/// A client has nothing to say.
const MAX_MESSAGE: usize = 4 * 1_024;

/// Pongs for a client that pings and does not read are kept until it does; no more than these.
const MAX_UNREAD: usize = 256 * 1_024;

/// The sockets that are open, and how long their clients may be silent.
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

    /// Waits until all are closed. The server itself waits for none: to it a connection has ended when
    /// it becomes a socket.
    pub(crate) async fn closed(&self) {
        self.open.close();
        self.open.wait().await;
    }
}

/// `GET /market/socket`: listings and trades from now on, each a message of JSON.
///
/// The response to the handshake has no body, so the socket holds the permit: until the client
/// closes it or is gone, the permit is lost, or the server stops.
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
    // A frame too: it is read as a whole before its message is looked at.
    let upgrade = upgrade?
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .max_write_buffer_size(MAX_UNREAD);
    Ok(upgrade.on_upgrade(|socket| session.run(socket)))
}

/// An open socket. Dropping it releases the permit, also in a panic.
struct Session {
    /// The server drops its own when it stops, and with the market the events would end.
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
            () = hear(&mut receiver, max_silence) => None,
            close = self.tell(&mut sender) => close,
            () = permit.lost() => Some(close(close_code::AGAIN, "the permit was lost")),
            () = stop.cancelled() => Some(close(close_code::AWAY, "the market stops")),
        };
        if let Some(close) = close {
            // A client that does not answer is no reason to keep the socket.
            let _ = timeout(FAREWELL, farewell(sender, receiver, close)).await;
        }
    }

    /// Sends events, and pings in between. Returns how to close the socket, if the client is there.
    async fn tell(&mut self, sender: &mut Sender) -> Option<CloseFrame> {
        let period = self.app.sockets.max_silence / 3;
        let mut pings = interval_at(Instant::now() + period, period);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                event = self.events.next() => match event {
                    Some(event) => Message::text(json!(event).to_string()),
                    None => return Some(close(close_code::AGAIN, "too many events are unread")),
                },
                _ = pings.tick() => Message::Ping(Bytes::new()),
            };
            sender.send(message).await.ok()?;
        }
    }
}

/// Returns when the client has closed the socket, or does not read. A client whose machine or network
/// has vanished closes nothing: only the pings that it does not answer tell. Nor does what else it
/// sends say that it reads. Reading is what answers the client's own pings.
async fn hear(receiver: &mut Receiver, max_silence: Duration) {
    while let Ok(true) = timeout(max_silence, pong(receiver)).await {}
}

/// Whether the client answers a ping, once it has done so or the socket has ended.
async fn pong(receiver: &mut Receiver) -> bool {
    while let Some(Ok(message)) = receiver.next().await {
        if matches!(message, Message::Pong(_)) {
            return true;
        }
    }
    false
}

fn close(code: u16, reason: &'static str) -> CloseFrame {
    let reason = reason.into();
    CloseFrame { code, reason }
}

/// Closes the socket, and reads until the client has done so too: an unread message would turn the
/// end of the connection into a reset, which may overtake the reason.
async fn farewell(mut sender: Sender, mut receiver: Receiver, close: CloseFrame) {
    if sender.send(Message::Close(Some(close))).await.is_ok() {
        while let Some(Ok(_)) = receiver.next().await {}
    }
}
