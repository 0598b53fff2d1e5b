//! The server that has the market.
//!
//! In a cluster, one node has the whole market, because its keys share a hash tag. So the market always lives on one
//! server, which another server may replace.

use super::keys;
use crate::place::{Place, Redis};
use futures_util::future::select_ok;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, io::tcp::TcpSettings,
};

/// The way to find the server.
pub(super) struct Server {
    /// Clients of the servers that the settings name.
    clients: Vec<Client>,
    kind: Kind,
}

enum Kind {
    Alone,
    Cluster,
    /// The Sentinels know the primary by this name.
    Sentinels(String),
}

impl Server {
    pub(super) fn new(redis: &Redis) -> RedisResult<Self> {
        let clients = redis.place.urls().iter();
        let clients = clients.map(|url| client(url, redis.authority.as_deref()));
        Ok(Self {
            clients: clients.collect::<RedisResult<_>>()?,
            kind: match &redis.place {
                Place::Server(_) => Kind::Alone,
                Place::Cluster(_) => Kind::Cluster,
                Place::Sentinels(_, name) => Kind::Sentinels(name.clone()),
            },
        })
    }

    /// Finds the server. The first answer wins.
    pub(super) async fn find(&self) -> RedisResult<Client> {
        let clients = self.clients.iter();
        let answers = clients.map(|client| Box::pin(self.find_through(client)));
        let (found, _) = select_ok(answers).await?;
        Ok(found)
    }

    async fn find_through(&self, client: &Client) -> RedisResult<Client> {
        match &self.kind {
            Kind::Alone => Ok(client.clone()),
            Kind::Cluster => cluster_node(client).await,
            Kind::Sentinels(name) => primary(client, name).await,
        }
    }
}

/// The node that has the market's keys. Any other node redirects to it.
async fn cluster_node(client: &Client) -> RedisResult<Client> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut read = redis::cmd("EXISTS");
    let answer = read.arg(keys::FUNDS).query_async::<bool>(&mut connection);
    let Err(error) = answer.await else {
        return Ok(client.clone());
    };
    let info = client.get_connection_info().clone();
    match error
        .redirect_node()
        .and_then(|(address, _)| address.rsplit_once(':'))
    {
        Some((host, port)) => client_at(info, host, port.parse().unwrap_or_default()),
        None => Err(error),
    }
}

/// The primary that a Sentinel names. The Sentinel's own password is not sent to it.
async fn primary(client: &Client, name: &str) -> RedisResult<Client> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let address: Option<(String, u16)> = ask.query_async(&mut connection).await?;
    let unknown = || RedisError::from((ErrorKind::Client, "no primary has this name"));
    let (host, port) = address.ok_or_else(unknown)?;
    let info = client.get_connection_info().clone();
    client_at(
        info.set_redis_settings(RedisConnectionInfo::default()),
        &host,
        port,
    )
}

/// A client of another server, with the same TLS settings.
fn client_at(info: ConnectionInfo, new_host: &str, new_port: u16) -> RedisResult<Client> {
    let mut address = info.addr().clone();
    if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
        &mut address
    {
        (*host, *port) = (new_host.to_owned(), new_port);
    }
    Client::open(info.set_addr(address))
}

fn client(url: &str, authority: Option<&[u8]>) -> RedisResult<Client> {
    // Without this option, a small command may be delayed until the previous one has been answered.
    let settings = TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(settings);
    match authority {
        None => Client::open(info),
        Some(pem) => secure(info, pem),
    }
}

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
fn secure(info: ConnectionInfo, pem: &[u8]) -> RedisResult<Client> {
    let certificates = redis::TlsCertificates {
        client_tls: None,
        root_cert: Some(pem.to_vec()),
    };
    Client::build_with_tls(info, certificates)
}

/// Unreachable: the permits' store has already refused the certificate.
#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
fn secure(info: ConnectionInfo, _: &[u8]) -> RedisResult<Client> {
    Client::open(info)
}
