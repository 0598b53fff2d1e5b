//! A service in this process that always refuses one account.

use crate::client::FULL;
use axum::{Router, extract::DefaultBodyLimit, routing};
use http::request::Parts;
use std::net::{Ipv4Addr, SocketAddr};
use testing::http_requests::ACCOUNT;
use tokio::{net::TcpListener, task::JoinHandle};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};

/// A running service. Dropping it ends the service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Service {
    /// A service under the default layer.
    pub(crate) async fn start() -> Self {
        Self::with(|routes| routes.layer(layer())).await
    }

    /// A service with any layers around its routes.
    pub(crate) async fn with(layers: impl FnOnce(Router) -> Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let length = async |body: String| body.len().to_string();
        let page = routing::get(async || "page").post(length);
        let routes = Router::new().fallback(page);
        let app = layers(routes.layer(DefaultBodyLimit::disable()));
        let server = async move { axum::serve(listener, app).await.expect("it serves") };
        Self {
            address,
            server: tokio::spawn(server),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Extract = fn(&Parts) -> Result<Claim, KeyError>;

/// A layer that refuses each request of [`FULL`].
pub(crate) fn layer() -> ConcurrencyLimitLayer<Extract> {
    ConcurrencyLimitLayer::new(100, claim, MemorySemaphore::new())
}

fn claim(parts: &Parts) -> Result<Claim, KeyError> {
    let account = parts.headers.get(ACCOUNT);
    let account = account.ok_or_else(|| KeyError::missing("the account"))?;
    let claim = Claim::new(account);
    Ok(match account == FULL {
        true => claim.with_limit(0),
        false => claim,
    })
}
