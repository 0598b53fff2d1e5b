//! A site of three hosts, each with a tree of pages that take their time.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::Html,
    routing::get,
};
use futures_util::stream;
use std::{
    convert::Infallible,
    fmt::Write,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, time::sleep};

const HOSTS: usize = 3;

/// Pages of each host: a tree of five levels in which each page leads to three others.
const PAGES: usize = 1 + 3 + 9 + 27 + 81;

/// How long the head of a page takes, and its body.
const DELAY: Duration = Duration::from_millis(10);

/// One of the hosts: its neighbours, and the requests that it sees.
struct Host {
    addresses: Vec<SocketAddr>,
    own: usize,
    now: AtomicUsize,
    most: AtomicUsize,
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
        .with_state(Arc::new(host))
}

/// A request is seen until the last of its page is on its way.
async fn page(State(host): State<Arc<Host>>, Path(number): Path<usize>) -> Html<Body> {
    let visit = Visit::begin(host);
    sleep(DELAY).await;
    Html(Body::from_stream(stream::once(async move {
        sleep(DELAY).await;
        Ok::<_, Infallible>(visit.host.page(number))
    })))
}

async fn most(State(host): State<Arc<Host>>) -> String {
    host.most.load(Ordering::SeqCst).to_string()
}

impl Host {
    fn new(own: usize, addresses: Vec<SocketAddr>) -> Self {
        let (now, most) = Default::default();
        Self {
            addresses,
            own,
            now,
            most,
        }
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
