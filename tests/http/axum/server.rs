//! A test server, and a view of its permits.

pub(crate) use super::handlers::Feed;
use super::handlers::routes;
use axum::Router;
use std::{net::SocketAddr, time::Duration};
use testing::{
    http_requests::limit,
    in_flight::InFlight,
    ledger::{Ledger, Page},
    wait::eventually,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tower_semaphore::{ConcurrencyLimitLayer, key};

/// The longest time for a condition to become true, even on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) witness: InFlight,
    ledger: Ledger,
    feeds: mpsc::UnboundedReceiver<Feed>,
}

impl Server {
    /// Starts a server that admits five requests per account.
    pub(crate) async fn start() -> Self {
        Self::start_with(|layer| layer).await
    }

    /// Starts a server whose layer has changed settings.
    pub(crate) async fn start_with(
        settings: impl Fn(ConcurrencyLimitLayer<key::Header>) -> ConcurrencyLimitLayer<key::Header>,
    ) -> Self {
        let ledger = Ledger::default();
        let layer = settings(limit(5, ledger.clone()));
        let server = Self::with_layer(layer).await;
        Self { ledger, ..server }
    }

    /// Starts a server under `layer`. `page` stays empty unless the layer's store is the server's ledger.
    pub(crate) async fn with_layer(layer: ConcurrencyLimitLayer<key::Header>) -> Self {
        Self::with_layers(|routes| routes.layer(layer)).await
    }

    /// Starts a server with any `layers` around its routes.
    pub(crate) async fn with_layers(layers: impl FnOnce(Router) -> Router) -> Self {
        let (feed, feeds) = mpsc::unbounded_channel();
        let witness = InFlight::default();
        let app = layers(routes(feed, witness.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            address,
            witness,
            ledger: Ledger::default(),
            feeds,
        }
    }

    /// The feed of the next body that `/stream` answers with.
    pub(crate) async fn feed(&mut self) -> Feed {
        let feed = timeout(BOUND, self.feeds.recv()).await;
        feed.expect("a stream in time").expect("a server that runs")
    }

    /// The ledger's record of alice's permits.
    pub(crate) fn page(&self) -> Page {
        self.ledger.page("alice")
    }

    pub(crate) fn held(&self) -> u32 {
        let page = self.page();
        page.granted - page.returned
    }

    /// Waits until alice holds `count` permits.
    pub(crate) async fn wait_until_held(&self, count: u32) {
        let is_held = async || self.held() == count;
        eventually("alice holds that many permits", BOUND, is_held).await;
    }
}
