//! Two markets that restart under load, behind nginx.
//!
//! Promises: P21, P22.

use crate::{
    client::{Answer, BOUND, Client, FULL, head},
    proxy::Nginx,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use testing::{example, port::Port, redis::RedisServer, wait::eventually};
use tokio::{process::Child, task::JoinSet, time::timeout};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// A market that restarts at the same address.
struct Market {
    port: Port,
    redis: String,
    child: Child,
}

impl Market {
    async fn start(redis: &RedisServer) -> Self {
        let (port, redis) = (Port::reserve(), redis.url());
        let child = run(&port, &redis).await;
        Self { port, redis, child }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number).into()
    }

    async fn restart(&mut self) {
        let pid = self.child.id().expect("it runs").try_into().ok();
        let pid = pid.and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it is our child");
        let ended = timeout(BOUND, self.child.wait()).await;
        let status = ended.expect("the market ends").expect("a child");
        assert!(status.success());
        self.child = run(&self.port, &self.redis).await;
    }
}

async fn run(port: &Port, redis: &str) -> Child {
    let settings = [("PORT", &*port.number.to_string()), ("REDIS_URL", redis)];
    let mut command = example::command("market", &settings);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the market starts");
    example::address(&mut child).await;
    child
}

/// The number of requests by their kind and their outcome, which is a status or the reason why none arrived.
type Outcomes = BTreeMap<(&'static str, String), usize>;

/// The state that all clients share. Each sends requests to `proxy` one after another until the test is over.
#[derive(Clone)]
struct Load {
    proxy: SocketAddr,
    outcomes: Arc<Mutex<Outcomes>>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn count(&self, kind: &'static str, answer: io::Result<Answer>) {
        let outcome = match answer {
            Ok(answer) if is_from_slow_store(&answer) => "the store is slow".to_owned(),
            Ok(answer) => answer.status.to_string(),
            Err(error) => error.to_string(),
        };
        let mut outcomes = self.outcomes.lock().expect("no panic");
        *outcomes.entry((kind, outcome)).or_default() += 1;
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until each kind of request has had `more` further outcomes.
    async fn wait_for_answers(&self, more: usize) {
        let count = || {
            let mut counts = BTreeMap::new();
            for ((kind, _), count) in &*self.outcomes.lock().expect("no panic") {
                *counts.entry(*kind).or_default() += count;
            }
            counts
        };
        let before: BTreeMap<_, usize> = count();
        eventually("requests of each kind are answered", BOUND, async || {
            let now = count();
            let done = |kind| now.get(kind) >= Some(&(before.get(kind).unwrap_or(&0) + more));
            ["trade", "read", "upload", "stream"].iter().all(done)
        })
        .await;
    }

    /// Sends a request on a separate connection.
    async fn send(
        &self,
        account: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<Answer> {
        let mut client = Client::connect(self.proxy).await;
        let head = head(method, path, account);
        let length = body.len();
        let request = format!(
            "{head}content-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        client.write(&request).await?;
        client.read().await
    }

    /// Lists an item of one new account, and buys it with another, repeatedly.
    async fn trade(self, trader: usize) {
        for number in 0.. {
            if !self.goes_on() {
                return;
            }
            let [seller, buyer] = ["s", "b"].map(|role| format!("{role}-{trader}-{number}"));
            let offer = format!(r#"{{"item":"{seller}-1","price":1}}"#);
            let listed = self.send(&seller, "POST", "/market/items", &offer).await;
            let body = listed.as_ref().ok().map(|answer| answer.body.clone());
            self.count("trade", listed);
            let listing: Option<Value> = body.and_then(|body| serde_json::from_str(&body).ok());
            if let Some(id) = listing.as_ref().and_then(|listing| listing["id"].as_str()) {
                let path = format!("/market/items/{id}/purchase");
                let bought = self.send(&buyer, "POST", &path, "").await;
                self.count("trade", bought);
            }
        }
    }

    async fn read(self) {
        while self.goes_on() {
            let answer = self.send("eve", "GET", "/market", "").await;
            self.count("read", answer);
        }
    }

    /// Uploads from an account that has no free permit.
    async fn upload(self) {
        let body = "x".repeat(200_000);
        while self.goes_on() {
            let answer = self.send(FULL, "POST", "/market/items", &body).await;
            self.count("upload", answer);
        }
    }

    /// Reads the beginning of streams, and then closes them.
    async fn stream(self) {
        while self.goes_on() {
            let answer = match open_stream(self.proxy, "sam").await {
                Ok((mut stream, answer)) => {
                    // A restart may cut the stream.
                    let _ = stream.read_some(500).await;
                    Ok(answer)
                }
                Err(error) => Err(error),
            };
            self.count("stream", answer);
        }
    }
}

/// True for a 503 of a market, which a busy machine may cause, and false for one of nginx.
fn is_from_slow_store(answer: &Answer) -> bool {
    answer.status == 503 && answer.header("content-type") == Some("application/problem+json")
}

/// An endless response whose head has been read.
async fn open_stream(proxy: SocketAddr, account: &str) -> io::Result<(Client, Answer)> {
    let mut client = Client::connect(proxy).await;
    let head = head("GET", "/market/export?rows=1000000&interval_ms=5", account);
    let request = format!("{head}connection: close\r\n\r\n");
    client.write(&request).await?;
    let answer = client.read_head().await?;
    Ok((client, answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_as_usual_while_markets_restart_under_load() {
    let redis = RedisServer::start();
    let mut markets = [Market::start(&redis).await, Market::start(&redis).await];
    // Without `max_fails=0`, nginx would use no market for a while after two failures. Over HTTP/1.0, a stream that a
    // restart cuts would look whole.
    let nginx = Nginx {
        servers: &markets.each_ref().map(Market::address),
        server: "max_fails=0",
        location: "proxy_http_version 1.1;",
        ..Nginx::default()
    };
    let nginx = nginx.start().await;
    let store = RedisSemaphore::connect(redis.url())
        .await
        .expect("a server");
    // Takes all five permits of the account, so that its uploads are refused.
    let all = Claim::new(FULL).with_limit(5).with_weight(5);
    let full = store.acquire(all).await.expect("it is free");

    let load = Load {
        proxy: nginx.address(),
        outcomes: Arc::default(),
        is_over: Arc::default(),
    };
    let mut clients = JoinSet::new();
    for trader in 0..3 {
        clients.spawn(load.clone().trade(trader));
    }
    for _ in 0..2 {
        clients.spawn(load.clone().read());
        clients.spawn(load.clone().upload());
        clients.spawn(load.clone().stream());
    }
    let opened = open_stream(load.proxy, "tom").await;
    let (mut endless, answer) = opened.expect("an answer");
    assert_eq!(answer.status, 200);

    for restart in 0..4 {
        load.wait_for_answers(5).await;
        markets[restart % 2].restart().await;
    }
    load.wait_for_answers(5).await;
    load.is_over.store(true, Ordering::Relaxed);
    let ended = timeout(BOUND, clients.join_all()).await;
    ended.expect("all clients are answered");

    assert!(!full.is_lost());
    let rows = endless.read_to_end().await;
    assert!(
        !rows.ends_with("\r\n0\r\n\r\n"),
        "the stream ended as if it were whole"
    );
    let outcomes = load.outcomes.lock().expect("no panic");
    let is_fine = |outcome: &str| matches!(outcome, "200" | "201" | "429" | "the store is slow");
    let all_fine = outcomes.keys().all(|(_, outcome)| is_fine(outcome));
    assert!(all_fine, "{outcomes:?}\n{}", nginx.log());
}
