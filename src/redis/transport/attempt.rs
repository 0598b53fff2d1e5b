//! An attempt to connect, and the search for the cause of its failure.
//!
//! redis-rs drops the server's reason when it refuses a password or a database. So this module sends the login and the
//! database as ordinary commands. A TLS port closes a plain connection, and a plain port does not answer a TLS
//! handshake. So after a failure, further connections detect the protocol of the port.
//!
//! A server, or a proxy, that does not know `HELLO` or `AUTH` repeats its arguments in the error, including the
//! password. So errors are stripped of it.
//!
//! Some proxies, such as twemproxy, end a connection at a command that they do not know. `CLIENT SETINFO`, `HELLO` and
//! `INFO` are optional. So if a connection ends while it is set up, a second connection is made without them. If the
//! second works, and a third with these commands ends again, the address gets no optional commands from then on.

use super::{
    address::Address,
    connection::Connection,
    endpoint::{Endpoint, config, without_optional},
    subscription::Subscription,
};
use crate::redis::{
    error::{CallError, deadline_after, finish_by, is_ended, without_password},
    fault::{Unfit, io_error},
};
use futures_util::future::join;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisConnectionInfo,
    RedisError, Value, cmd,
};
use std::{error::Error as _, io, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    select,
    time::{sleep, timeout},
};

/// The longest time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// How long a port may take to show its protocol.
const REACTION: Duration = Duration::from_millis(250);

/// The longest response that is read, in bytes.
const MAX_RESPONSE: u64 = 4_096;

/// The longest argument that Redis reads before authentication, in bytes. If an argument is longer, Redis closes the
/// connection, mostly before the client has read the error.
const MAX_ARG_BEFORE_AUTH: usize = 16 * 1_024;

/// An empty `ClientHello`, which a server that speaks TLS answers with an alert.
const CLIENT_HELLO: &[u8] = &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0];

/// The first byte of an alert.
const ALERT: u8 = 21;

/// The error of a step of connecting that has taken too long.
pub(super) fn timed_out() -> CallError {
    CallError::unconnected(io::Error::from(io::ErrorKind::TimedOut))
}

/// Determines if a failed attempt opens further connections to find the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Inquiry {
    Run,
    Skip,
}

/// Connects within `CONNECT_TIME`. After a failure, finds the cause if `inquiry` permits it.
pub(super) async fn connect(
    endpoint: &Endpoint,
    inquiry: Inquiry,
) -> Result<Connection, CallError> {
    let info = endpoint.info();
    // A supplied connector may lead to another address.
    let inquires = inquiry == Inquiry::Run && !endpoint.is_supplied();
    let attempt = async {
        let login = endpoint.login().await?;
        match open_or_reopen(endpoint, login, inquiry).await {
            Err(error) if inquires => Err(explain(error, info).await),
            connection => connection,
        }
    };
    // A port without TLS does not answer a TLS handshake, so it is tested after a while.
    let is_plain = async {
        sleep(CONNECT_TIME / 4).await;
        inquires && is_secure(info) && is_plain(info).await
    };
    let connected = async {
        select! {
            connection = attempt => connection.map_err(CallError::unconnected),
            true = is_plain => Err(CallError::unconnected(Unfit::SpeaksNoTls)),
        }
    };
    finish_by(deadline_after(CONNECT_TIME), timed_out(), connected).await
}

/// Makes a connection. If it ends while it is set up, finds out if the server ends connections at optional commands, as
/// the module docs describe.
async fn open_or_reopen(
    endpoint: &Endpoint,
    login: RedisConnectionInfo,
    inquiry: Inquiry,
) -> Result<Connection, RedisError> {
    let error = match open(endpoint, login.clone()).await {
        Err(error) if inquiry == Inquiry::Run && !endpoint.is_basic() && is_ended(&error) => error,
        connection => return connection,
    };
    let connection = match open(endpoint, without_optional(login.clone())).await {
        Ok(connection) => connection,
        // An error reply, such as a wrong password, explains more than a closed connection.
        Err(answer) if answer.code().is_some() => return Err(answer),
        Err(_) => return Err(error),
    };
    // The first connection may have ended for another reason.
    match open(endpoint, login).await {
        Err(error) if is_ended(&error) => {
            endpoint.leave_out_optional();
            Ok(connection)
        }
        reopened => reopened,
    }
}

/// Makes a connection, logs in, and selects the database.
async fn open(endpoint: &Endpoint, login: RedisConnectionInfo) -> Result<Connection, RedisError> {
    let mut anonymous = RedisConnectionInfo::default();
    if login.skip_set_lib_name() {
        anonymous = anonymous.set_skip_set_lib_name();
    }
    let multiplexed = endpoint.connect(anonymous, config()).await?;
    let connection = Connection::new(multiplexed, login.clone(), endpoint.clone());
    let first_error = async |commands| {
        let replies = connection.call(commands).await;
        replies.into_iter().find_map(Result::err)
    };
    // A server that requires a password closes the connection if the password is too long. A server without a password
    // answers with an error instead. A `PING` shows which of them this is.
    if is_too_long(&login) {
        let error = first_error(vec![cmd("PING")]).await;
        if error.is_some_and(|error| error.is_code(&["NOAUTH"])) {
            return Err(TOO_LONG.into());
        }
    }
    match first_error(login_commands(&login)).await {
        Some(error) => Err(without_password(error.into_cause(), &login)),
        None => Ok(connection),
    }
}

/// The commands that log in, select the version of the protocol, and select the database.
fn login_commands(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let (user, password) = (settings.username(), settings.password());
    let hello = (settings.protocol() != ProtocolVersion::RESP2).then(|| {
        let login = password.map(|password| ("AUTH", user.unwrap_or("default"), password));
        cmd("HELLO").arg(3).arg(login).take()
    });
    let auth = || password.map(|password| cmd("AUTH").arg(user).arg(password).take());
    let select = (settings.db() != 0).then(|| cmd("SELECT").arg(settings.db()).take());
    // Without `CLIENT SETINFO` only a `PING` shows that the server answers.
    let ping = settings.skip_set_lib_name().then(|| cmd("PING"));
    let login = hello.or_else(auth).into_iter();
    login.chain(select).chain(ping).collect()
}

fn is_too_long(settings: &RedisConnectionInfo) -> bool {
    let sent = [settings.username(), settings.password()];
    sent.into_iter()
        .flatten()
        .any(|text| text.len() > MAX_ARG_BEFORE_AUTH)
}

const TOO_LONG: (ErrorKind, &str) = (
    ErrorKind::AuthenticationFailed,
    "Redis ends the connection at a user or a password of more than 16 KB",
);

/// Replaces the error of a failed attempt by its cause, as far as further connections show it.
async fn explain(error: RedisError, info: &ConnectionInfo) -> RedisError {
    let is_secure = is_secure(info);
    if is_secure && is_of_tls(&error) {
        return match is_plain(info).await {
            true => Unfit::SpeaksNoTls.into(),
            false => Unfit::Handshake(error).into(),
        };
    }
    if !is_secure && is_ended(&error) {
        // A server that accepts no clients sends its error without a request.
        let (to_hello, to_nothing) =
            join(response_to(info, CLIENT_HELLO), response_to(info, b"")).await;
        if to_hello.first() == Some(&ALERT) {
            return Unfit::SpeaksTls.into();
        }
        if let Ok(Value::ServerError(refusal)) = redis::parse_redis_value(&to_nothing) {
            return refusal.into();
        }
    }
    error
}

/// Returns the first required command at which the server closes the connection, twice in a row. If it does so at
/// `INFO`, it gets no optional commands from now on.
pub(in crate::redis) async fn ends_at(endpoint: &Endpoint, channel: &str) -> Option<&'static str> {
    let ends = async |probe: ProbeCommand| {
        probe.ends(endpoint, channel).await && probe.ends(endpoint, channel).await
    };
    if !endpoint.is_basic() && ends(ProbeCommand::Info).await {
        endpoint.leave_out_optional();
    }
    // Over the connections of a user's connector, messages come with RESP3 only.
    let hello = endpoint.is_supplied().then_some(ProbeCommand::Hello);
    let needed = [ProbeCommand::EvalSha, ProbeCommand::Eval]
        .into_iter()
        .chain(hello);
    for needed in needed.chain([ProbeCommand::Subscribe]) {
        if ends(needed).await {
            return Some(needed.name());
        }
    }
    None
}

/// A command that a proxy may not know.
#[derive(Clone, Copy)]
enum ProbeCommand {
    Info,
    EvalSha,
    Eval,
    Hello,
    Subscribe,
}

impl ProbeCommand {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::EvalSha => "EVALSHA",
            Self::Eval => "EVAL",
            Self::Hello => "HELLO",
            Self::Subscribe => "SUBSCRIBE",
        }
    }

    /// True if a new connection answers a `PING`, and ends at this command.
    async fn ends(self, endpoint: &Endpoint, channel: &str) -> bool {
        let Ok(login) = endpoint.login().await else {
            return false;
        };
        let Ok(connection) = open_or_reopen(endpoint, login, Inquiry::Skip).await else {
            return false;
        };
        let disconnects = async |command: Cmd| {
            let replies = connection.call(vec![command]).await;
            replies
                .iter()
                .any(|reply| matches!(reply, Err(error) if error.is_disconnect()))
        };
        if disconnects(cmd("PING")).await {
            return false;
        }
        let mut command = cmd(self.name());
        match self {
            Self::Info => {}
            Self::EvalSha => drop(command.arg("0".repeat(40)).arg(1).arg(channel)),
            Self::Eval => drop(command.arg("return 0").arg(1).arg(channel)),
            Self::Hello => drop(command.arg(3)),
            Self::Subscribe => {
                let subscribed = Subscription::open(endpoint, channel).await;
                return subscribed.is_err_and(|error| error.is_disconnect());
            }
        }
        disconnects(command).await
    }
}

fn is_secure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// True if a TLS library has made this error, by itself or within an I/O error.
fn is_of_tls(error: &RedisError) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::Other];
    let is_within = |error: &io::Error| kinds.contains(&error.kind()) && error.get_ref().is_some();
    let is_by_itself = error.kind() == ErrorKind::Client && error.source().is_some();
    is_by_itself || io_error(error).is_some_and(is_within)
}

/// True if the server answers a command that is not encrypted.
async fn is_plain(info: &ConnectionInfo) -> bool {
    let response = response_to(info, b"PING\r\n").await;
    matches!(response.first(), Some(b'+' | b'-'))
}

/// Sends a request over a new connection. Returns the first line of the response, or the bytes that have arrived before
/// the end or the timeout.
async fn response_to(info: &ConnectionInfo, request: &[u8]) -> Vec<u8> {
    let mut response = Vec::new();
    let read = async {
        let address = Address::from_info(info);
        let Address { host, port } = address.ok_or(io::ErrorKind::Unsupported)?;
        let mut socket = TcpStream::connect((host, port)).await?;
        socket.write_all(request).await?;
        let mut lines = BufReader::new(socket.take(MAX_RESPONSE));
        lines.read_until(b'\n', &mut response).await
    };
    // After an error or the timeout the bytes read so far count.
    let _ = timeout(REACTION, read).await;
    response
}
