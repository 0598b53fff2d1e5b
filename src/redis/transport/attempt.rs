//! An attempt to connect, and why it fails.
//!
//! redis-rs drops what a server says when it refuses a password or a database, so what a URL says of them is sent
//! here, as commands like all others. A port that speaks TLS ends a connection that does not, and one that speaks no
//! TLS is silent: what it speaks is found out over further connections.
//!
//! A server, or a proxy, that does not know `HELLO` or `AUTH` repeats what it was sent, the password too.

use super::{address::Address, connection::Connection, endpoint::Endpoint};
use crate::redis::error::{Error, after, by, without_password};
use futures_util::future::join;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion,
    RedisConnectionInfo, RedisError, Value, cmd,
};
use std::{error::Error as StdError, fmt, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    select,
    time::{sleep, timeout},
};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(1);

/// How long a port may take to show what it speaks.
const REACTION: Duration = Duration::from_millis(250);

/// How much of what a server says is read, in bytes.
const MOST_SAID: u64 = 4_096;

/// The longest argument that Redis reads from a client that has to tell a password first, in bytes. It ends the
/// connection of one that sends more, mostly before the client has read why.
const MOST_UNKNOWN: usize = 16 * 1_024;

/// An empty `ClientHello`, which a server that speaks TLS answers with an alert.
const HELLO: &[u8] = &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
const ALERT: u8 = 21;

/// What does not go by itself, as the cause of an I/O error.
#[derive(Debug)]
pub(in crate::redis) enum Unfit {
    SpeaksTls,
    SpeaksNoTls,
    /// The two sides have not agreed on TLS.
    Handshake(RedisError),
    /// The Sentinels know no primary of this name.
    WrongName,
    /// A supplied connector has ignored what it was given.
    WrongConnector,
}

impl Unfit {
    /// The cause of an error, if it is one of these.
    pub(in crate::redis) fn of(error: &RedisError) -> Option<&Self> {
        io_error(error)?.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpeaksTls => f.write_str("a TLS alert came"),
            Self::SpeaksNoTls => f.write_str("an answer came that is not TLS"),
            Self::Handshake(error) => error.fmt(f),
            Self::WrongName => f.write_str("no Sentinel knows the primary's name"),
            Self::WrongConnector => f.write_str("the connection brings no messages"),
        }
    }
}

impl StdError for Unfit {}

impl From<Unfit> for RedisError {
    fn from(unfit: Unfit) -> Self {
        io::Error::other(unfit).into()
    }
}

/// The time of a part of connecting is over.
pub(super) fn timed_out() -> Error {
    Error::unconnected(io::Error::from(io::ErrorKind::TimedOut))
}

/// If an attempt to connect fails, further connections can show why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Inquiry {
    Run,
    Skip,
}

/// Connects.
pub(super) async fn connect(endpoint: &Endpoint, inquiry: Inquiry) -> Result<Connection, Error> {
    let info = endpoint.info();
    // A supplied connector may lead to another address.
    let inquires = inquiry == Inquiry::Run && !endpoint.is_supplied();
    let attempt = async {
        let login = endpoint.login().await?;
        match open(endpoint, login).await {
            Err(error) if inquires => Err(explained(error, info).await),
            connection => connection,
        }
    };
    // A port that speaks no TLS is silent.
    let is_plain = async {
        sleep(CONNECT / 4).await;
        inquires && is_secure(info) && is_plain(info).await
    };
    let connected = async {
        select! {
            connection = attempt => connection.map_err(Error::unconnected),
            true = is_plain => Err(Error::unconnected(Unfit::SpeaksNoTls)),
        }
    };
    by(after(CONNECT), timed_out(), connected).await
}

/// The store bounds connecting and calls itself.
pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

async fn open(endpoint: &Endpoint, login: RedisConnectionInfo) -> Result<Connection, RedisError> {
    let multiplexed = endpoint.connect(Default::default(), config()).await?;
    let connection = Connection::new(multiplexed, login.clone(), endpoint.clone());
    let refusal = async |commands| {
        let replies = connection.call(commands).await;
        replies.into_iter().find_map(Result::err)
    };
    // A server that has no password reads a longer one, and says so.
    if is_too_long(&login) {
        let refusal = refusal(vec![cmd("PING")]).await;
        if refusal.is_some_and(|error| error.is_code(&["NOAUTH"])) {
            return Err(TOO_LONG.into());
        }
    }
    match refusal(log_in(&login)).await {
        Some(error) => Err(without_password(error.into_cause(), &login)),
        None => Ok(connection),
    }
}

/// Says who this is, which version of the protocol it speaks, and which database it uses.
fn log_in(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let (user, password) = (settings.username(), settings.password());
    let hello = (settings.protocol() != ProtocolVersion::RESP2).then(|| {
        let login = password.map(|password| ("AUTH", user.unwrap_or("default"), password));
        cmd("HELLO").arg(3).arg(login).take()
    });
    let auth = || password.map(|password| cmd("AUTH").arg(user).arg(password).take());
    let select = (settings.db() != 0).then(|| cmd("SELECT").arg(settings.db()).take());
    hello.or_else(auth).into_iter().chain(select).collect()
}

fn is_too_long(settings: &RedisConnectionInfo) -> bool {
    let sent = [settings.username(), settings.password()];
    sent.into_iter()
        .flatten()
        .any(|text| text.len() > MOST_UNKNOWN)
}

const TOO_LONG: (ErrorKind, &str) = (
    ErrorKind::AuthenticationFailed,
    "Redis ends the connection at a user or a password of more than 16 KB",
);

/// What is known of an attempt to connect that has failed.
async fn explained(error: RedisError, info: &ConnectionInfo) -> RedisError {
    let is_secure = is_secure(info);
    if is_secure && is_of_tls(&error) {
        return match is_plain(info).await {
            true => Unfit::SpeaksNoTls.into(),
            false => Unfit::Handshake(error).into(),
        };
    }
    // The server has closed the connection.
    if !is_secure && error.is_connection_dropped() && !error.is_connection_refusal() {
        let (to_hello, unasked) = join(said(info, HELLO), said(info, b"")).await;
        if to_hello.first() == Some(&ALERT) {
            return Unfit::SpeaksTls.into();
        }
        if let Ok(Value::ServerError(refusal)) = redis::parse_redis_value(&unasked) {
            return refusal.into();
        }
    }
    error
}

fn is_secure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Whether a TLS library has made this error, by itself or within one of I/O.
fn is_of_tls(error: &RedisError) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::Other];
    let is_within = |error: &io::Error| kinds.contains(&error.kind()) && error.get_ref().is_some();
    let is_by_itself = error.kind() == ErrorKind::Client && error.source().is_some();
    is_by_itself || io_error(error).is_some_and(is_within)
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn StdError + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// Whether the server answers a command that is not encrypted.
async fn is_plain(info: &ConnectionInfo) -> bool {
    let said = said(info, b"PING\r\n").await;
    matches!(said.first(), Some(b'+' | b'-'))
}

/// What a server says to this, or before it closes a connection that it does not accept: a line, or what it is until
/// then.
async fn said(info: &ConnectionInfo, sent: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    let read = async {
        let address = Address::of(info);
        let Address { host, port } = address.ok_or(io::ErrorKind::Unsupported)?;
        let mut socket = TcpStream::connect((host, port)).await?;
        socket.write_all(sent).await?;
        let mut lines = BufReader::new(socket.take(MOST_SAID));
        lines.read_until(b'\n', &mut said).await
    };
    // What was read before an error, or in time, counts.
    let _ = timeout(REACTION, read).await;
    said
}
