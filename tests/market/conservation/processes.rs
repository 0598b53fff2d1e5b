//! The two processes of one market, which the test kills and restarts.

use crate::{client::Client, process::Market};
use http::Method;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// Two processes on one Redis.
pub(super) struct Processes {
    url: String,
    /// A client of each process. If the process was killed, it uses the last address.
    clients: Mutex<Vec<Client>>,
    /// `None` for a killed process.
    markets: Mutex<Vec<Option<Market>>>,
}

impl Processes {
    pub(super) async fn start(url: String) -> Self {
        let processes = Self {
            url,
            clients: Mutex::default(),
            markets: Mutex::default(),
        };
        for _ in 0..2 {
            let market = processes.start_market().await;
            locked(&processes.clients).push(market.anonymous_client());
            locked(&processes.markets).push(Some(market));
        }
        processes
    }

    async fn start_market(&self) -> Market {
        let settings = [("REDIS_URL", &*self.url), ("LEASE_MS", "1000")];
        Market::start(&settings).await
    }

    /// Kills a process in the middle of its work.
    pub(super) async fn kill(&self, process: usize) {
        let market = locked(&self.markets)[process].take();
        market.expect("it runs").kill().await;
    }

    /// Starts a killed process again, on another port.
    pub(super) async fn restart(&self, process: usize) {
        let market = self.start_market().await;
        locked(&self.clients)[process] = market.anonymous_client();
        locked(&self.markets)[process] = Some(market);
    }

    /// Sends a SIGTERM to the running processes, and waits for their end.
    pub(super) async fn terminate(&self) {
        let markets = std::mem::take(&mut *locked(&self.markets));
        for market in markets.into_iter().flatten() {
            market.terminate();
            assert!(market.wait_until_ended().await.success());
        }
    }

    /// Sends a request to the process with this number, modulo 2. Returns the status and body of the answer, or `None`
    /// if it breaks off or never arrives, so that the outcome is unknown.
    pub(super) async fn send(
        &self,
        number: usize,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        let client = locked(&self.clients)[number % 2]
            .clone()
            .with_account(account);
        let request = client.request(method, path);
        let request = request.header("content-type", "application/json");
        let answer = client.try_send(request, body).await?;
        let status = answer.status();
        let body = answer.try_text().await?;
        Some((status, body.parse().expect("the body is JSON")))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
