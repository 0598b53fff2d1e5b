//! A site of three hosts, each with a tree of slow pages. Now and then a host asks its clients for a pause.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{StatusCode, header::RETRY_AFTER},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use futures_util::stream;
use std::{
    convert::Infallible,
    fmt::Write,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::sleep};

const HOSTS: usize = 3;

/// The number of pages per host. They form a tree of five levels in which each page links to three others.
const PAGES: usize = 1 + 3 + 9 + 27 + 81;

/// The delay of a page's head, and then of its body.
const DELAY: Duration = Duration::from_millis(10);

/// A host closes for [`CLOSED_FOR`], and answers 429, each time it has received this number of requests while open.
const CLOSES_AFTER: usize = 75;
const CLOSED_FOR: Duration = Duration::from_secs(1);

/// One of the hosts: the addresses of all hosts, and counts of the requests that it receives.
struct Host {
    addresses: Vec<SocketAddr>,
    /// The position of this host in `addresses`.
    index: usize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    closing: Mutex<Closing>,
}

/// The end of a host's pause, and counts of its requests.
#[derive(Default)]
struct Closing {
    until: Option<Instant>,
    /// The number of requests that it has received while open.
    received: usize,
    /// The number of requests during the last pause, and the largest such number of all pauses.
    early: usize,
    most_early: usize,
}

/// Serves the site on free ports. Returns the address of the first host.
pub(crate) async fn start() -> io::Result<SocketAddr> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..HOSTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(listener.local_addr()?);
        listeners.push(listener);
    }
    for (index, listener) in listeners.into_iter().enumerate() {
        let host = Host::new(index, addresses.clone());
        tokio::spawn(async move { axum::serve(listener, routes(host)).await });
    }
    Ok(addresses[0])
}

fn routes(host: Host) -> Router {
    Router::new()
        .route("/", get(async |host| page(host, Path(0)).await))
        .route("/pages/{number}", get(page))
        .route("/most", get(most))
        .route("/early", get(early))
        .with_state(Arc::new(host))
}

/// A request counts as in flight until the last part of its page has been sent.
async fn page(State(host): State<Arc<Host>>, Path(number): Path<usize>) -> Response {
    let visit = Visit::begin(host);
    if let Some(rest) = visit.host.closing().count_request(Instant::now()) {
        let seconds = rest.as_secs_f64().ceil().to_string();
        return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)]).into_response();
    }
    sleep(DELAY).await;
    let page = stream::once(async move {
        sleep(DELAY).await;
        Ok::<_, Infallible>(visit.host.page(number))
    });
    Html(Body::from_stream(page)).into_response()
}

async fn most(State(host): State<Arc<Host>>) -> String {
    host.most_in_flight.load(Ordering::SeqCst).to_string()
}

async fn early(State(host): State<Arc<Host>>) -> String {
    host.closing().most_early.to_string()
}

impl Host {
    fn new(index: usize, addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            index,
            in_flight: AtomicUsize::default(),
            most_in_flight: AtomicUsize::default(),
            closing: Mutex::default(),
        }
    }

    fn closing(&self) -> MutexGuard<'_, Closing> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page with this number. It links to its children, and page 0 links to all hosts.
    fn page(&self, number: usize) -> String {
        let mut html = format!("<h1>Page {number}</h1>\n");
        let children = (3 * number + 1..=3 * number + 3).filter(|child| *child < PAGES);
        for child in children {
            let host = self.addresses[self.index];
            let _ = writeln!(html, "<a href=\"http://{host}/pages/{child}\">{child}</a>");
        }
        for host in self.addresses.iter().filter(|_| number == 0) {
            let _ = writeln!(html, "<a href=\"http://{host}/\">{host}</a>");
        }
        html
    }
}

impl Closing {
    /// Counts a request. Returns the rest of the pause if the host is closed.
    fn count_request(&mut self, now: Instant) -> Option<Duration> {
        if let Some(until) = self.until.filter(|until| now < *until) {
            self.early += 1;
            self.most_early = self.most_early.max(self.early);
            return Some(until - now);
        }
        self.received += 1;
        let closes = self.received.is_multiple_of(CLOSES_AFTER);
        closes.then(|| {
            (self.until, self.early) = (Some(now + CLOSED_FOR), 0);
            CLOSED_FOR
        })
    }
}

/// A request in flight, as the host counts it.
struct Visit {
    host: Arc<Host>,
}

impl Visit {
    fn begin(host: Arc<Host>) -> Self {
        let in_flight = host.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        host.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        Self { host }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.host.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
