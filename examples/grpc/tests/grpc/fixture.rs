//! A server with scripted answers, and clients of it.

use futures_util::{StreamExt, stream};
use grpc::{
    ACCOUNT,
    client::PricesClient,
    messages::{Item, Price},
    server::{Answer, PriceStream, Prices, PricesServer},
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::wait::eventually;
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};
use tower_semaphore::{ConcurrencyLimitLayer, KeyExtractor, Semaphore, key};

/// The longest time for a condition to become true, even on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// Answers according to the item's name, and counts the running handlers.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Scripted {
    /// The largest number of handlers that ran at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    /// The number of handlers that run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(SeqCst)
    }

    fn enter(&self) -> Running {
        let running = self.running.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(running, SeqCst);
        Running(self.clone())
    }
}

/// A running handler. Dropping this ends its count.
struct Running(Scripted);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Prices for Scripted {
    fn now(&self, request: Request<Item>) -> Answer<Price> {
        let running = self.enter();
        Box::pin(async move {
            let _running = running;
            match &*request.into_inner().name {
                "never" => pending::<()>().await,
                "panic" => panic!("on purpose"),
                _ => sleep(Duration::from_millis(20)).await,
            }
            Ok(Response::new(Price { coins: 7 }))
        })
    }

    fn follow(&self, request: Request<Item>) -> Answer<PriceStream> {
        let running = self.enter();
        let name = request.into_inner().name;
        let three = stream::iter([1, 2, 3]).map(|coins| Ok(Price { coins }));
        let prices: PriceStream = match &*name {
            "endless" => three.chain(stream::pending()).boxed(),
            "panic" => three
                .chain(stream::once(async { panic!("on purpose") }))
                .boxed(),
            "fail" => three
                .chain(stream::iter([Err(Status::aborted("on purpose"))]))
                .boxed(),
            _ => three.boxed(),
        };
        Box::pin(async move {
            let _running = running;
            Ok(Response::new(prices))
        })
    }
}

/// Limits the calls in flight per account, counted by `semaphore`.
pub(crate) fn limit(limit: u32, semaphore: impl Semaphore) -> ConcurrencyLimitLayer<key::Header> {
    ConcurrencyLimitLayer::new(limit, key::header(ACCOUNT), semaphore)
}

/// Starts a server under this layer. It ends with the test. Returns its address.
pub(crate) async fn serve<K: KeyExtractor + Send + Sync + 'static>(
    layer: ConcurrencyLimitLayer<K>,
    prices: Scripted,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut server = Server::builder().layer(layer);
    let server = server.add_service(PricesServer::new(prices));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    url
}

pub(crate) async fn channel(url: &str) -> Channel {
    let endpoint = Channel::from_shared(url.to_owned()).expect("a URL");
    endpoint.connect().await.expect("a server")
}

pub(crate) type Client = PricesClient<Channel>;

/// A client of a server under this layer.
pub(crate) async fn client<K: KeyExtractor + Send + Sync + 'static>(
    layer: ConcurrencyLimitLayer<K>,
) -> Client {
    let url = serve(layer, Scripted::default()).await;
    PricesClient::new(channel(&url).await)
}

/// A request of `account` for the price of this item.
pub(crate) fn ask(account: &str, name: &str) -> Request<Item> {
    let name = name.to_owned();
    let mut request = Request::new(Item { name });
    let account = account.parse().expect("a name that fits into metadata");
    request.metadata_mut().insert(ACCOUNT, account);
    request
}

/// Waits until a call of `account` is admitted.
pub(crate) async fn wait_until_admitted(client: &mut Client, account: &str) {
    eventually("a call is admitted", BOUND, async || {
        client.now(ask(account, "carrot")).await.is_ok()
    })
    .await;
}

/// The result of `future`, which must arrive within [`BOUND`].
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(BOUND, future).await.expect("in time")
}
