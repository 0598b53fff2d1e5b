//! A gRPC service and its client, each with a limit.
//!
//! ```sh
//! cargo run -p tower-semaphore-grpc                                     # a server: five calls in flight per account
//! cargo run -p tower-semaphore-grpc -- http://127.0.0.1:PORT ann        # a client: three calls in flight, in all processes
//! cargo run -p tower-semaphore-grpc -- http://127.0.0.1:PORT ann follow # a call that holds its permit
//! ```
//!
//! `PORT` sets the server's port (any free port by default), `LIMIT` the calls that an account may have in flight, and
//! `WAIT_MS` how long a call may wait for its permit. With `REDIS_URL` set, all servers share one limit, and all
//! clients share another.

use futures_util::{StreamExt, future::try_join_all};
use grpc::{
    ACCOUNT,
    client::PricesClient,
    messages::{Item, Price},
    server::{Answer, PriceStream, Prices, PricesServer},
};
use std::{env, error::Error, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    time::{Instant, interval, sleep},
};
use tokio_stream::wrappers::{IntervalStream, TcpListenerStream};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};
use tower::Layer;
use tower_semaphore::{
    ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, OnLost, RedisSemaphore,
    Semaphore, key,
};

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let semaphore: Arc<dyn Semaphore> = match env::var("REDIS_URL") {
        Ok(url) => Arc::new(RedisSemaphore::connect(&*url).await?),
        Err(_) => Arc::new(MemorySemaphore::new()),
    };
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(semaphore).await,
        [url, account] => ask(url, account, semaphore).await,
        [url, account, "follow"] => follow(url, account, semaphore).await,
        _ => Err("arguments: none, or URL ACCOUNT, or URL ACCOUNT follow".into()),
    }
}

/// Runs a server that counts a call from its head to its trailers. If a call's deadline ends while it waits, tonic
/// drops it, and it leaves the queue.
async fn serve(semaphore: Arc<dyn Semaphore>) -> Result<(), BoxError> {
    let limit = ConcurrencyLimitLayer::new(number("LIMIT", 5)?, key::header(ACCOUNT), semaphore)
        .with_wait(Duration::from_millis(number("WAIT_MS", 0)?.into()))
        .with_on_lost(OnLost::Abort);
    let port = number("PORT", 0)?.try_into()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let server = Server::builder().layer(limit);
    let mut server = server.http2_keepalive_interval(Some(Duration::from_secs(10)));
    let prices = server.add_service(PricesServer::new(Haggling));
    prices
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

fn number(name: &str, default: u32) -> Result<u32, BoxError> {
    Ok(env::var(name).map_or(Ok(default), |text| text.parse())?)
}

/// The channel to a server. It is not ready while three calls are in flight, so its caller waits before it sends, and
/// the server need not refuse anything.
async fn channel(
    url: &str,
    semaphore: Arc<dyn Semaphore>,
) -> Result<PricesClient<<GlobalConcurrencyLimitLayer as Layer<Channel>>::Service>, BoxError> {
    let channel = Channel::from_shared(url.to_owned())?.connect().await?;
    let limit = GlobalConcurrencyLimitLayer::new(3, url, semaphore);
    Ok(PricesClient::new(limit.layer(channel)))
}

fn request(account: &str) -> Result<Request<Item>, BoxError> {
    let name = "carrot".to_owned();
    let mut request = Request::new(Item { name });
    request.metadata_mut().insert(ACCOUNT, account.parse()?);
    Ok(request)
}

/// Makes a dozen calls at once.
async fn ask(url: &str, account: &str, semaphore: Arc<dyn Semaphore>) -> Result<(), BoxError> {
    let client = channel(url, semaphore).await?;
    let start = Instant::now();
    let calls = (0..12).map(|_| {
        let mut client = client.clone();
        async move { Ok::<_, BoxError>(client.now(request(account)?).await?) }
    });
    let prices = try_join_all(calls).await?;
    println!("{} prices in {:?}", prices.len(), start.elapsed());
    Ok(())
}

/// Makes one call, which runs until the server ends it.
async fn follow(url: &str, account: &str, semaphore: Arc<dyn Semaphore>) -> Result<(), BoxError> {
    let mut client = channel(url, semaphore).await?;
    let mut prices = client.follow(request(account)?).await?;
    while let Some(price) = prices.message().await? {
        println!("{} coins", price.coins);
    }
    Ok(())
}

/// Prices that start at ten coins per letter of the item's name, and fall while a client follows them.
struct Haggling;

impl Prices for Haggling {
    fn now(&self, request: Request<Item>) -> Answer<Price> {
        Box::pin(async move {
            // Long enough that the calls of `ask` overlap.
            sleep(Duration::from_millis(50)).await;
            asking_price(&request.into_inner()).map(Response::new)
        })
    }

    fn follow(&self, request: Request<Item>) -> Answer<PriceStream> {
        Box::pin(async move {
            let Price { coins } = asking_price(&request.into_inner())?;
            let ticks = IntervalStream::new(interval(Duration::from_millis(200)));
            let prices = ticks.enumerate().map(move |(tick, _)| Price {
                coins: coins.saturating_sub(tick as u64).max(1),
            });
            Ok(Response::new(prices.map(Ok).boxed()))
        })
    }
}

fn asking_price(item: &Item) -> Result<Price, Status> {
    match item.name.len() as u64 {
        0 => Err(Status::invalid_argument("an item has a name")),
        letters => Ok(Price {
            coins: 10 * letters,
        }),
    }
}
