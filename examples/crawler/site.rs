//! A site of three hosts, each with a tree of pages that take their time. Now and then a host asks its clients for a
//! pause.

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

/// Pages of each host: a tree of five levels in which each page leads to three others.
const PAGES: usize = 1 + 3 + 9 + 27 + 81;

/// How long the head of a page takes, and its body.
const DELAY: Duration = Duration::from_millis(10);

/// A host closes at each request of this number, for this time.
const CLOSES_AT: usize = 75;
const CLOSED: Duration = Duration::from_secs(1);

/// One of the hosts: its neighbours, and the requests that it sees.
struct Host {
    addresses: Vec<SocketAddr>,
    own: usize,
    now: AtomicUsize,
    most: AtomicUsize,
    closing: Mutex<Closing>,
}

/// When a host is closed, and the requests that it sees then.
#[derive(Default)]
struct Closing {
    until: Option<Instant>,
    /// Those that it has answered otherwise.
    answered: usize,
    /// Those since it has closed, and the most of these in one closing.
    early: usize,
    most_early: usize,
}

/// Serves the site on ports that are free. Returns where to begin.
pub(crate) async fn start() -> io::Result<SocketAddr> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..HOSTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(listener.local_addr()?);
        listeners.push(listener);
    }
    for (own, listener) in listeners.into_iter().enumerate() {
        let host = Host::new(own, addresses.clone());
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

/// A request is seen until the last of its page is on its way.
async fn page(State(host): State<Arc<Host>>, Path(number): Path<usize>) -> Response {
    let visit = Visit::begin(host);
    if let Some(rest) = visit.host.closing().answer(Instant::now()) {
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
    host.most.load(Ordering::SeqCst).to_string()
}

async fn early(State(host): State<Arc<Host>>) -> String {
    host.closing().most_early.to_string()
}

impl Host {
    fn new(own: usize, addresses: Vec<SocketAddr>) -> Self {
        let (now, most, closing) = Default::default();
        Self {
            addresses,
            own,
            now,
            most,
            closing,
        }
    }

    fn closing(&self) -> MutexGuard<'_, Closing> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page of this number: links to its children, from the first one to the other hosts too.
    fn page(&self, number: usize) -> String {
        let mut html = format!("<h1>Page {number}</h1>\n");
        let children = (3 * number + 1..=3 * number + 3).filter(|child| *child < PAGES);
        for child in children {
            let host = self.addresses[self.own];
            let _ = writeln!(html, "<a href=\"http://{host}/pages/{child}\">{child}</a>");
        }
        for host in self.addresses.iter().filter(|_| number == 0) {
            let _ = writeln!(html, "<a href=\"http://{host}/\">{host}</a>");
        }
        html
    }
}

impl Closing {
    /// Returns the time for which the host is closed, if it is.
    fn answer(&mut self, now: Instant) -> Option<Duration> {
        if let Some(until) = self.until.filter(|until| now < *until) {
            self.early += 1;
            self.most_early = self.most_early.max(self.early);
            return Some(until - now);
        }
        self.answered += 1;
        let closes = self.answered.is_multiple_of(CLOSES_AT);
        closes.then(|| {
            (self.until, self.early) = (Some(now + CLOSED), 0);
            CLOSED
        })
    }
}

/// A request in flight, as the host sees it.
struct Visit {
    host: Arc<Host>,
}

impl Visit {
    fn begin(host: Arc<Host>) -> Self {
        let now = host.now.fetch_add(1, Ordering::SeqCst) + 1;
        host.most.fetch_max(now, Ordering::SeqCst);
        Self { host }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.host.now.fetch_sub(1, Ordering::SeqCst);
    }
}
