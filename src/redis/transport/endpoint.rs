//! Makes connections, and calls a user's connector and credentials.
//!
//! redis-rs's own `StreamingCredentialsProvider` is not used. It sends each token to all connections and only logs
//! errors, so a connection could outlive its token unnoticed. Here each new connection requests credentials. If the
//! request fails, connecting fails.

use super::address::Address;
use crate::{
    redis::fault::Failed,
    semaphore::{BoxError, BoxFuture},
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, RedisConnectionInfo,
    RedisResult, aio::MultiplexedConnection,
};
use std::{collections::BTreeSet, fmt, mem, panic::AssertUnwindSafe, sync::Arc};

type Connect = dyn Fn(ConnectionInfo, AsyncConnectionConfig) -> BoxFuture<RedisResult<MultiplexedConnection>>
    + Send
    + Sync;
type Provide = dyn Fn() -> BoxFuture<Result<Credentials, BoxError>> + Send + Sync;

/// Disables the timeouts of redis-rs, because the store has its own for connecting and for calls.
pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// A user and a password, for one connection.
///
/// # Examples
///
/// ```
/// use tower_semaphore::redis::Credentials;
///
/// let credentials = Credentials::new("ann", "secret");
/// assert_eq!(format!("{credentials:?}"), "Credentials { user: \"ann\", .. }");
/// ```
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// Makes credentials. On a server with a password but without users, the user is `default`.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A user's functions that make connections and return credentials.
#[derive(Clone, Default)]
pub(in crate::redis) struct Connector {
    /// `None` if redis-rs makes the connections.
    pub(in crate::redis) connect: Option<Arc<Connect>>,
    /// `None` if URLs have the user and the password.
    pub(in crate::redis) credentials: Option<Arc<Provide>>,
    /// The addresses of servers that get no optional commands.
    pub(in crate::redis) basic: Arc<Mutex<BTreeSet<String>>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("is_supplied", &self.connect.is_some())
            .field("has_credentials", &self.credentials.is_some())
            .finish()
    }
}

/// A server, and how connections to it are made.
#[derive(Clone)]
pub(in crate::redis) struct Endpoint {
    info: ConnectionInfo,
    connector: Connector,
}

impl Endpoint {
    pub(in crate::redis) fn new(info: ConnectionInfo, connector: Connector) -> Self {
        Self { info, connector }
    }

    pub(in crate::redis) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// The same settings for the server at another address.
    pub(super) fn at(&self, address: &Address) -> Self {
        Self::new(address.info(&self.info), self.connector.clone())
    }

    /// True if a user's connector makes the connections.
    pub(super) fn is_supplied(&self) -> bool {
        self.connector.connect.is_some()
    }

    /// True if the server gets no optional commands, because it ends connections at them.
    pub(in crate::redis) fn is_basic(&self) -> bool {
        self.connector.basic.lock().contains(&self.address())
    }

    /// Sends the server no optional commands from now on.
    pub(super) fn leave_out_optional(&self) {
        self.connector.basic.lock().insert(self.address());
    }

    pub(super) fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// The settings of a new connection, with its user and password.
    pub(super) async fn login(&self) -> RedisResult<RedisConnectionInfo> {
        let settings = self.info.redis_settings().clone();
        let settings = match self.is_basic() {
            true => without_optional(settings),
            false => settings,
        };
        let Some(provide) = &self.connector.credentials else {
            return Ok(settings);
        };
        let provided = contained(|| provide()).await;
        let provided = provided.unwrap_or_else(|| Err("it has panicked".into()));
        let own = provided.map_err(|cause| Failed::error("credentials", cause))?;
        Ok(settings.set_username(own.user).set_password(own.password))
    }

    /// Makes a connection with these settings.
    pub(super) async fn connect(
        &self,
        settings: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let info = self.info.clone().set_redis_settings(settings);
        let Some(connect) = &self.connector.connect else {
            let client = Client::open(info)?;
            return client
                .get_multiplexed_async_connection_with_config(&config)
                .await;
        };
        match contained(|| connect(info, config)).await {
            // An error of the network or of a server is classified in the same way as without a connector.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidClientConfig => {
                Err(Failed::error("connector", error.into()))
            }
            Some(connected) => connected,
            None => Err(Failed::error("connector", "it has panicked".into())),
        }
    }
}

/// The outcome of a user's function. `None` if it has panicked.
async fn contained<T>(call: impl FnOnce() -> BoxFuture<T>) -> Option<T> {
    let outcome = AssertUnwindSafe(async { call().await }).catch_unwind();
    // The drop of a panic's payload may panic too.
    outcome.await.map_err(mem::forget).ok()
}

/// Settings with which no optional commands are sent.
pub(super) fn without_optional(settings: RedisConnectionInfo) -> RedisConnectionInfo {
    let settings = settings.set_skip_set_lib_name();
    settings.set_protocol(ProtocolVersion::RESP2)
}
