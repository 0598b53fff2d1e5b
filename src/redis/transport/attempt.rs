//! An attempt to connect, and why it fails.
//!
//! redis-rs drops what a server says when it refuses a password or a database, so what a URL says of them is sent
//! here, as commands like all others. A port that speaks TLS ends a connection that does not, and one that speaks no
//! TLS is silent: what it speaks is found out over further connections.
//!
//! A server, or a proxy, that does not know `HELLO` or `AUTH` repeats what it was sent, the password too.
//!
//! Some proxies, such as twemproxy, end a connection at a command that they do not know. `CLIENT SETINFO`, `HELLO` and
//! `INFO` are optional. So after a connection that ends while it is set up, another one is made without them, and if
//! that one answers a `PING`, its address gets no optional command from then on.

use super::{
    address::Address,
    connection::{Connection, Way},
    subscription::Subscription,
};
use crate::redis::{
    error::{Error, after, by, without_password},
    fault::{Unfit, io_error},
};
use futures_util::future::join;
use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, ProtocolVersion,
    RedisConnectionInfo, RedisError, Value, cmd,
};
use std::{collections::BTreeSet, error::Error as _, io, time::Duration};
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
pub(super) async fn connect(client: &Client, inquiry: Inquiry) -> Result<Connection, Error> {
    let attempt = async {
        match open_or_reopen(client, inquiry).await {
            Err(error) if inquiry == Inquiry::Run => Err(explained(error, client).await),
            connection => connection,
        }
    };
    // A port that speaks no TLS is silent.
    let is_plain = async {
        sleep(CONNECT / 4).await;
        inquiry == Inquiry::Run && is_secure(client) && is_plain(client).await
    };
    let connected = async {
        select! {
            connection = attempt => connection.map_err(Error::unconnected),
            true = is_plain => Err(Error::unconnected(Unfit::SpeaksNoTls)),
        }
    };
    by(after(CONNECT), timed_out(), connected).await
}

/// The addresses that get no optional commands.
static BASIC: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// True if a client's server gets no optional commands, because it ends connections at them.
pub(in crate::redis) fn is_basic(client: &Client) -> bool {
    let address = client.get_connection_info().addr().to_string();
    BASIC.lock().contains(&address)
}

async fn open_or_reopen(client: &Client, inquiry: Inquiry) -> Result<Connection, RedisError> {
    if is_basic(client) {
        return open(&without_optional(client)?).await;
    }
    let error = match open(client).await {
        Err(error) if inquiry == Inquiry::Run && is_ended(&error) => error,
        connection => return connection,
    };
    let Ok(connection) = open(&without_optional(client)?).await else {
        return Err(error);
    };
    // The first one may have ended for another reason.
    match open(client).await {
        Err(error) if is_ended(&error) => {
            leave_out_optional(client);
            Ok(connection)
        }
        reopened => reopened,
    }
}

fn leave_out_optional(client: &Client) {
    let address = client.get_connection_info().addr().to_string();
    BASIC.lock().insert(address);
}

/// A client that sends no optional commands.
fn without_optional(client: &Client) -> Result<Client, RedisError> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let settings = settings.set_protocol(ProtocolVersion::RESP2);
    Client::open(info.set_redis_settings(settings))
}

/// True if the server has closed the connection.
fn is_ended(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

async fn open(client: &Client) -> Result<Connection, RedisError> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone();
    let mut anonymous = RedisConnectionInfo::default();
    if settings.skip_set_lib_name() {
        anonymous = anonymous.set_skip_set_lib_name();
    }
    let stranger = Client::open(info.set_redis_settings(anonymous))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let multiplexed = stranger.get_multiplexed_async_connection_with_config(&config);
    let connection = Connection::new(Way::Own(multiplexed.await?, Box::new(client.clone())));
    let refusal = async |commands| {
        let replies = connection.call(commands).await;
        replies.into_iter().find_map(Result::err)
    };
    // A server that has no password reads a longer one, and says so.
    if is_too_long(&settings) {
        let refusal = refusal(vec![cmd("PING")]).await;
        if refusal.is_some_and(|error| error.is_code(&["NOAUTH"])) {
            return Err(TOO_LONG.into());
        }
    }
    match refusal(log_in(&settings)).await {
        Some(error) => Err(without_password(error.into_cause(), client)),
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
    // Otherwise redis-rs has had an answer.
    let ping = settings.skip_set_lib_name().then(|| cmd("PING"));
    let login = hello.or_else(auth).into_iter();
    login.chain(select).chain(ping).collect()
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
async fn explained(error: RedisError, client: &Client) -> RedisError {
    let is_secure = is_secure(client);
    if is_secure && is_of_tls(&error) {
        return match is_plain(client).await {
            true => Unfit::SpeaksNoTls.into(),
            false => Unfit::Handshake(error).into(),
        };
    }
    if !is_secure && is_ended(&error) {
        let (to_hello, unasked) = join(said(client, HELLO), said(client, b"")).await;
        if to_hello.first() == Some(&ALERT) {
            return Unfit::SpeaksTls.into();
        }
        if let Ok(Value::ServerError(refusal)) = redis::parse_redis_value(&unasked) {
            return refusal.into();
        }
    }
    error
}

/// The first of the commands that every claim needs at which the server ends connections, twice in a row. If it ends them
/// at `INFO`, it gets none from now on.
pub(in crate::redis) async fn ends_at(client: &Client, channel: &str) -> Option<&'static str> {
    let ends =
        async |trial: Trial| trial.ends(client, channel).await && trial.ends(client, channel).await;
    if !is_basic(client) && ends(Trial::Info).await {
        leave_out_optional(client);
    }
    for needed in [Trial::EvalSha, Trial::Eval, Trial::Subscribe] {
        if ends(needed).await {
            return Some(needed.name());
        }
    }
    None
}

/// A command that a proxy may not know.
#[derive(Clone, Copy)]
enum Trial {
    Info,
    EvalSha,
    Eval,
    Subscribe,
}

impl Trial {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::EvalSha => "EVALSHA",
            Self::Eval => "EVAL",
            Self::Subscribe => "SUBSCRIBE",
        }
    }

    /// True if a new connection answers a `PING`, and ends at this command.
    async fn ends(self, client: &Client, channel: &str) -> bool {
        let Ok(connection) = open_or_reopen(client, Inquiry::Skip).await else {
            return false;
        };
        let is_end = async |command: Cmd| {
            let replies = connection.call(vec![command]).await;
            replies
                .iter()
                .any(|reply| matches!(reply, Err(error) if error.is_disconnect()))
        };
        if is_end(cmd("PING")).await {
            return false;
        }
        let mut command = cmd(self.name());
        match self {
            Self::Info => {}
            Self::EvalSha => drop(command.arg("0".repeat(40)).arg(1).arg(channel)),
            Self::Eval => drop(command.arg("return 0").arg(1).arg(channel)),
            Self::Subscribe => {
                let subscribed = Subscription::open(client, channel).await;
                return subscribed.is_err_and(|error| error.is_disconnect());
            }
        }
        is_end(command).await
    }
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

/// Whether the server answers a command that is not encrypted.
async fn is_plain(client: &Client) -> bool {
    let said = said(client, b"PING\r\n").await;
    matches!(said.first(), Some(b'+' | b'-'))
}

/// What a server says to this, or before it closes a connection that it does not accept: a line, or what it is until
/// then.
async fn said(client: &Client, sent: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    let read = async {
        let address = Address::of(client.get_connection_info());
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
