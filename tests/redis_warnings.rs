//! What the log says. A program of its own, because other tests would decide what is logged: whether
//! an event is of interest is known for the whole process, and is found out by whoever is first.

#![cfg(all(feature = "redis", feature = "tracing"))]

use std::{
    io::{Result, Write},
    sync::{Arc, Mutex},
};
use testing::redis::RedisServer;
use tower_semaphore::RedisSemaphore;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no test panics with it").clone();
        String::from_utf8(bytes).expect("it is text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("no test panics with it").write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_risk_is_a_warning_when_the_store_connects() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu"]);
    let connected = RedisSemaphore::connect(server.url()).await;
    connected.expect("it connects");
    let said = log.text();
    assert!(
        said.contains("WARN") && said.contains("allkeys-lfu"),
        "{said}"
    );
}
