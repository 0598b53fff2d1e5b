//! An attempt to connect, and why it fails: what redis-rs does not tell, the server is asked again.
//!
//! redis-rs drops what a server says when it refuses a password or a database. A port that speaks TLS ends
//! a connection that does not, and one that speaks no TLS is silent.

use super::connection::{CONNECT, Connection, timed_out, without_password};
use crate::{
    redis::error::{Error, after},
    semaphore::timer::timeout_at,
};
use futures_util::future::join;
use redis::{Client, Cmd, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, Value, cmd};
use std::{error::Error as StdError, fmt, io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// What does not go by itself, as the cause of an I/O error.
#[derive(Debug)]
pub(in crate::redis) enum Unfit {
    SpeaksTls,
    SpeaksNoTls,
    /// The two sides have not agreed on TLS.
    Handshake(RedisError),
    /// The Sentinels know no primary of this name.
    WrongName,
}

/// How long a port may take to show what it speaks.
const REACTION: Duration = Duration::from_millis(250);

/// How much of what a server says by itself is read, in bytes.
const MOST_SAID: u64 = 4_096;

/// The longest argument that Redis reads from a client that has to tell a password first, in bytes. It ends the
/// connection of one that sends more, mostly before the client has read why.
const MOST_UNKNOWN: usize = 16 * 1_024;

/// An empty `ClientHello`, which a server that speaks TLS answers with an alert.
const HELLO: &[u8] = &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0];

/// What the alert begins with.
const ALERT: u8 = 21;

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
        }
    }
}

impl StdError for Unfit {}

impl From<Unfit> for RedisError {
    fn from(unfit: Unfit) -> Self {
        io::Error::other(unfit).into()
    }
}

/// Connects.
pub(super) async fn connect(client: &Client) -> Result<Connection, Error> {
    let mut attempt = pin!(async {
        match Connection::open(client).await {
            Ok(connection) => Ok(connection),
            Err(error) => Err(explained(error, client).await),
        }
    });
    let connected = match timeout_at(after(CONNECT / 2), &mut attempt).await {
        Ok(connected) => connected,
        Err(late) if late.is_early => return Err(Error::PausedClock),
        Err(_) if is_secure(client) && is_plain(client).await => Err(Unfit::SpeaksNoTls.into()),
        Err(_) => {
            let connected = timeout_at(after(CONNECT / 2), attempt).await;
            connected.map_err(|late| late.or(timed_out()))?
        }
    };
    connected.map_err(Error::unconnected)
}

/// What is known of an attempt to connect that has failed.
async fn explained(error: RedisError, client: &Client) -> RedisError {
    let is_secure = is_secure(client);
    match error.kind() {
        _ if is_too_long(client) && requires_password(client).await => TOO_LONG.into(),
        ErrorKind::AuthenticationFailed => refusal(client).await.unwrap_or(error),
        _ if error.code() == Some("ERR") => refusal(client).await.unwrap_or(error),
        _ if is_secure && is_of_tls(&error) => match is_plain(client).await {
            true => Unfit::SpeaksNoTls.into(),
            false => Unfit::Handshake(error).into(),
        },
        _ if !is_secure && is_end(&error) => {
            match join(speaks(client, HELLO, &[ALERT]), unasked(client)).await {
                (true, _) => Unfit::SpeaksTls.into(),
                (false, said) => said.unwrap_or(error),
            }
        }
        _ => error,
    }
}

/// Whether the server answers a command that is not encrypted.
async fn is_plain(client: &Client) -> bool {
    speaks(client, b"PING\r\n", b"+-").await
}

fn is_secure(client: &Client) -> bool {
    let address = client.get_connection_info().addr();
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Whether a TLS library has made this error, by itself or within one of I/O.
fn is_of_tls(error: &RedisError) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::Other];
    let is_within = |error: &io::Error| kinds.contains(&error.kind()) && error.get_ref().is_some();
    let is_by_itself = error.kind() == ErrorKind::Client && error.source().is_some();
    is_by_itself || io_error(error).is_some_and(is_within)
}

/// Whether the server has closed the connection.
fn is_end(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn StdError + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

const TOO_LONG: (ErrorKind, &str) = (
    ErrorKind::AuthenticationFailed,
    "Redis ends the connection at a user or a password of more than 16 KB",
);

fn is_too_long(client: &Client) -> bool {
    let settings = client.get_connection_info().redis_settings();
    let mut sent = [settings.username(), settings.password()]
        .into_iter()
        .flatten();
    sent.any(|text| text.len() > MOST_UNKNOWN)
}

async fn requires_password(client: &Client) -> bool {
    let refusal = refused(client, vec![cmd("PING")]).await;
    refusal.is_some_and(|error| error.code() == Some("NOAUTH"))
}

/// Sends the user, the password and the database as commands, and returns what the server refuses.
async fn refusal(client: &Client) -> Option<RedisError> {
    let commands = commands(client.get_connection_info().redis_settings());
    refused(client, commands).await
}

/// What the server refuses of these commands, on a connection without a user and a password.
async fn refused(client: &Client, commands: Vec<Cmd>) -> Option<RedisError> {
    let info = client.get_connection_info().clone();
    let bare = info.set_redis_settings(RedisConnectionInfo::default());
    let connection = Connection::open(&Client::open(bare).ok()?).await.ok()?;
    let replies = connection.call(commands).await;
    let refusal = replies.into_iter().find_map(Result::err)?;
    Some(without_password(refusal.into_cause(), client))
}

fn commands(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let login = settings.password().map(|password| {
        let mut login = cmd("AUTH");
        login.arg(settings.username()).arg(password);
        login
    });
    let number = settings.db();
    let select = (number != 0).then(|| cmd("SELECT").arg(number).take());
    login.into_iter().chain(select).collect()
}

/// Whether the server answers these bytes with one of those.
async fn speaks(client: &Client, sent: &[u8], expected: &[u8]) -> bool {
    let answer = async {
        let mut socket = socket(client).await?;
        socket.write_all(sent).await?;
        socket.read_u8().await
    };
    let answer = timeout(REACTION, answer).await;
    matches!(answer, Ok(Ok(byte)) if expected.contains(&byte))
}

/// What a server says to a connection that it does not accept, before it closes it.
async fn unasked(client: &Client) -> Option<RedisError> {
    let said = async {
        let mut said = Vec::new();
        socket(client)
            .await?
            .take(MOST_SAID)
            .read_to_end(&mut said)
            .await?;
        io::Result::Ok(said)
    };
    let said = timeout(REACTION, said).await.ok()?.ok()?;
    match redis::parse_redis_value(&said).ok()? {
        Value::ServerError(error) => Some(error.into()),
        _ => None,
    }
}

async fn socket(client: &Client) -> io::Result<TcpStream> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            TcpStream::connect((host.as_str(), *port)).await
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}
