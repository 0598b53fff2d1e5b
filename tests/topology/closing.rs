//! Servers that accept connections and close them at once, as a load balancer without a target does.
//!
//! Promises: P18.

use crate::{cluster, sentinel};
use std::{
    future::pending,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use testing::{
    redis::{Cluster, RedisServer, Sentinels},
    wait::eventually,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime,
    task::JoinHandle,
    time::sleep,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(30);

/// The time in which the pauses between attempts grow to their full length, one to two seconds.
const GROWN: Duration = Duration::from_secs(10);
/// The time for which connections are counted afterwards.
const COUNTED: Duration = Duration::from_secs(10);

/// A port on which connections are accepted and closed.
struct Closing {
    accepted: Arc<Mutex<Vec<Instant>>>,
    accepting: JoinHandle<()>,
}

impl Closing {
    async fn on(port: u16) -> Self {
        let bind = || -> std::io::Result<TcpListener> {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
            socket.listen(1_024)
        };
        let mut listener = None;
        eventually("the port is free", BOUND, async || {
            listener = bind().ok();
            listener.is_some()
        })
        .await;
        let listener = listener.expect("it is free");
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&accepted);
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                seen.lock().expect("no panic").push(Instant::now());
                drop(socket);
            }
        });
        Self {
            accepted,
            accepting,
        }
    }

    /// The times between the connections that arrive within `COUNTED`.
    async fn gaps(&self) -> Vec<Duration> {
        let before = self.accepted.lock().expect("no panic").len();
        sleep(COUNTED).await;
        let all = self.accepted.lock().expect("no panic");
        let gaps = all[before..].windows(2);
        gaps.map(|pair| pair[1] - pair[0]).collect()
    }

    async fn end(self) {
        self.accepting.abort();
        let _ = self.accepting.await;
    }
}

/// Starts three more runtimes that claim and check for as long as the process runs.
fn claim_in_runtimes(store: &RedisSemaphore) {
    for number in 0..3 {
        let store = store.clone();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::spawn({
                    let store = store.clone();
                    async move {
                        loop {
                            let _ = store.check().await;
                            sleep(Duration::from_millis(10)).await;
                        }
                    }
                });
                tokio::spawn(async move {
                    // Each runtime claims other keys.
                    for key in (0..32).cycle() {
                        let claim = Claim::new(key * 3 + number).with_limit(9);
                        drop(store.acquire(claim).await);
                        sleep(Duration::from_millis(5)).await;
                    }
                });
                pending::<()>().await;
            });
        });
    }
}

/// Asserts that connection attempts are rare but go on, and that their intervals vary.
async fn assert_rare(what: &str, closing: &Closing) {
    let gaps = closing.gaps().await;
    let rate = gaps.len() as f64 / COUNTED.as_secs_f64();
    println!("{what}: {rate:.1} connects per second: {gaps:?}");
    assert!(rate <= 2.0, "{what}: {rate} connects per second");
    assert!(gaps.len() >= 2, "{what}: the store has given up");
    let (least, most) = (gaps.iter().min(), gaps.iter().max());
    assert_ne!(least, most, "{what}: all intervals are equal");
}

async fn works(store: &RedisSemaphore) -> bool {
    let permit = store.acquire(Claim::new("a").with_limit(9)).await;
    permit.is_ok_and(|permit| !permit.is_degraded())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_rarely_connects_to_a_closing_server_and_finds_it_when_it_is_back() {
    let mut server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    claim_in_runtimes(&store);
    eventually("it works", BOUND, async || works(&store).await).await;
    server.kill();
    let closing = Closing::on(server.port()).await;
    sleep(GROWN).await;
    assert_rare("one server", &closing).await;
    closing.end().await;
    server.restart();
    let start = Instant::now();
    eventually("it is found", BOUND, async || works(&store).await).await;
    println!("found after {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_rarely_connects_to_closing_nodes_of_a_cluster() {
    let mut cluster = Cluster::of_primaries(3).await;
    let store = cluster::connect(RedisSemaphore::builder(), &cluster).await;
    claim_in_runtimes(&store);
    eventually("it works", BOUND, async || works(&store).await).await;
    let mut ports = Vec::new();
    for node in 0..3 {
        cluster.node_mut(node).kill();
        ports.push(cluster.node(node).port());
    }
    let mut all = Vec::new();
    for port in ports {
        all.push(Closing::on(port).await);
    }
    sleep(GROWN).await;
    let each = all.iter().map(|closing| assert_rare("a node", closing));
    futures_util::future::join_all(each).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_rarely_connects_to_one_closing_node_of_a_cluster() {
    let mut cluster = Cluster::with(3, false, &["--cluster-require-full-coverage", "no"]).await;
    let store = cluster::connect(RedisSemaphore::builder(), &cluster).await;
    claim_in_runtimes(&store);
    eventually("it works", BOUND, async || works(&store).await).await;
    cluster.node_mut(1).kill();
    let closing = Closing::on(cluster.node(1).port()).await;
    sleep(GROWN).await;
    // The other nodes connect to this node too, but at its bus port.
    assert_rare("one node", &closing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_rarely_connects_to_closing_sentinels() {
    let mut primary = RedisServer::start();
    let mut sentinels = [0; 3].map(|_| sentinel::naming_since_epoch(&primary, 3));
    let urls: Vec<_> = sentinels.iter().map(RedisServer::url).collect();
    let store = RedisSemaphore::builder().connect_sentinel(urls, Sentinels::NAME);
    let store = store.await.expect("it connects");
    claim_in_runtimes(&store);
    eventually("it works", BOUND, async || works(&store).await).await;
    // Otherwise the Sentinels would connect to the primary too.
    primary.kill();
    let mut all = Vec::new();
    for sentinel in &mut sentinels {
        sentinel.kill();
        all.push(Closing::on(sentinel.client_port()).await);
    }
    sleep(GROWN).await;
    let each = all.iter().map(|closing| assert_rare("a Sentinel", closing));
    futures_util::future::join_all(each).await;
}
