//! Markets that stop at a signal under load, alone or one after another in a fleet.
//!
//! The lease is an hour, so an unreleased permit is still held when the test ends.
//!
//! Promises: P9, P11.

use crate::{
    client::{Client, streams},
    process::Market,
    socket_client::Socket,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{task::JoinSet, time::sleep};

const ACCOUNTS: usize = 8;
const BOUND: Duration = Duration::from_secs(60);

/// Five for each client, on average.
const SEVERAL: usize = 200;

/// A response that takes a while, and a quick one.
const PATHS: [&str; 2] = ["/market/export?rows=10&interval_ms=20", "/market"];

async fn start(server: &RedisServer, wait_ms: &str) -> Market {
    let settings = [
        ("REDIS_URL", &*server.url()),
        ("LEASE_MS", "3600000"),
        ("WAIT_MS", wait_ms),
    ];
    Market::start(&settings).await
}

/// The outcomes of all clients' requests.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    /// Admitted, and the body arrived to its end.
    whole: usize,
    /// Admitted, and the body broke off.
    broken: usize,
    /// Refused with 429. A 503 is not counted: on a busy machine the store may be too slow.
    refused: usize,
}

type Shared<T> = Arc<Mutex<T>>;

/// The addresses of the markets that accept requests.
type OpenUrls = Shared<Vec<String>>;

/// Requests the paths in turn from an open market, chosen by the client's number. Ends when no market is open.
async fn request_until_closed(
    account: String,
    number: usize,
    open: OpenUrls,
    tally: Shared<Tally>,
) {
    for path in PATHS.iter().cycle() {
        let url = {
            let open = open.lock().expect("no panic");
            match open.len() {
                0 => return,
                count => open[number % count].clone(),
            }
        };
        let client = Client::http1(&url).with_account(&account);
        let request = client.request(http::Method::GET, path);
        // Without a head, the market has stopped before it admitted the request.
        let Some(answer) = client.try_send(request, "").await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        let status = answer.status();
        let is_whole = answer.try_text().await.is_some();
        let mut tally = tally.lock().expect("no panic");
        match (status, is_whole) {
            (200, true) => tally.whole += 1,
            (200, false) => tally.broken += 1,
            (429, _) => tally.refused += 1,
            (status, _) => assert_eq!(status, 503),
        }
    }
}

/// Starts five clients of each account, as many as it has permits.
fn start_clients(open: &OpenUrls) -> (JoinSet<()>, Shared<Tally>) {
    let tally = Shared::default();
    let mut clients = JoinSet::new();
    for account in 0..ACCOUNTS {
        for number in 0..5 {
            let account = format!("account-{account}");
            clients.spawn(request_until_closed(
                account,
                number,
                Arc::clone(open),
                Arc::clone(&tally),
            ));
        }
    }
    (clients, tally)
}

/// The number of units that are held in Redis.
async fn held(server: &RedisServer) -> usize {
    let mut raw = Raw::connect(server.port()).await;
    let mut held = 0;
    for key in raw.keys("semaphore:*:held").await {
        held += raw.zmembers(&key).await.len();
    }
    held
}

/// Waits for this number of further whole responses.
async fn wait_until_served(tally: &Shared<Tally>, more: usize) {
    let before = tally.lock().expect("no panic").whole;
    eventually("the clients are served", BOUND, async || {
        tally.lock().expect("no panic").whole >= before + more
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_market_that_stops_under_load_ends_its_responses_and_gives_every_permit_back() {
    let server = RedisServer::start();
    let market = start(&server, "0").await;
    let open = Arc::new(Mutex::new(vec![market.url().to_owned()]));
    let (clients, tally) = start_clients(&open);
    // These streams and sockets outlast the market's time limit for its shutdown. Nothing reads them.
    let _endless = streams(&market.client("stuck"), 3).await;
    let _sockets = Socket::several(&market, "stuck", 2).await;
    wait_until_served(&tally, SEVERAL).await;
    assert!(held(&server).await > 0);

    market.terminate();
    open.lock().expect("no panic").clear();
    assert!(market.wait_until_ended().await.success());
    // Checked without waiting: nothing can release a permit after the exit.
    assert_eq!(held(&server).await, 0);
    clients.join_all().await;
    assert_eq!(tally.lock().expect("no panic").broken, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_markets_that_restart_one_by_one_refuse_no_request_and_leave_no_permit() {
    let server = RedisServer::start();
    let mut markets = Vec::new();
    for _ in 0..3 {
        markets.push(start(&server, "5000").await);
    }
    let urls = markets.iter().map(|market| market.url().to_owned());
    let open = Arc::new(Mutex::new(urls.collect()));
    let (clients, tally) = start_clients(&open);
    wait_until_served(&tally, SEVERAL).await;

    for (index, market) in markets.iter_mut().enumerate() {
        let next = start(&server, "5000").await;
        open.lock().expect("no panic")[index] = next.url().to_owned();
        let old = std::mem::replace(market, next);
        old.terminate();
        assert!(old.wait_until_ended().await.success());
        wait_until_served(&tally, SEVERAL).await;
    }
    open.lock().expect("no panic").clear();
    clients.join_all().await;
    let Tally {
        broken, refused, ..
    } = *tally.lock().expect("no panic");
    assert_eq!((broken, refused), (0, 0));
    eventually("every permit is released", BOUND, async || {
        held(&server).await == 0
    })
    .await;
}
