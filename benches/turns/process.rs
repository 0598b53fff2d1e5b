//! A server with a limit, run as a child of this benchmark.

use axum::{Router, routing::get};
use std::{
    env,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
};
use tokio::net::TcpListener;
use tower_semaphore::{ConcurrencyLimitLayer, RedisSemaphore, key};

const SERVES: &str = "TURNS_SERVES";

/// Serves if this process is such a child.
pub(crate) fn serves_as_child() -> bool {
    let Ok(what) = env::var(SERVES) else {
        return false;
    };
    let (url, limit) = what.split_once(' ').expect("the parent says both");
    serve(url, limit.parse().expect("it is a number"));
    true
}

#[tokio::main]
async fn serve(url: &str, limit: u32) {
    let store = RedisSemaphore::connect(url).await;
    let store = store.expect("the server is there");
    let layer = ConcurrencyLimitLayer::new(limit, key::header("x-account-id"), store);
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port is free");
    println!("{}", listener.local_addr().expect("it is bound"));
    axum::serve(listener, router).await.expect("it serves");
}

/// A server as its parent sees it. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(redis: &str, limit: u32) -> Self {
        let mut child = Command::new(env::current_exe().expect("a benchmark is a program"))
            .env(SERVES, format!("{redis} {limit}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("the child writes");
        let address = line.trim_end().parse().expect("it is an address");
        Self { child, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
