//! Connections for the rivals of the library, with the same settings as the library's connections.

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, io::tcp::TcpSettings};

pub use redis::aio::MultiplexedConnection;

/// A client whose connections send small packets at once.
pub fn client(url: &str) -> Client {
    let info = url.into_connection_info().expect("the address is valid");
    let settings = TcpSettings::default().set_nodelay(true);
    Client::open(info.set_tcp_settings(settings)).expect("the address is valid")
}

/// Another connection of a client.
pub async fn connect(client: &Client) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("the server is there")
}
