//! The processes of one market. Any of them may be gone for a while.

use crate::{client::Client, process::Market};
use http::Method;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// Two processes on one Redis.
pub(super) struct Doors {
    url: String,
    /// A client of each process, at the address that the process had last.
    clients: Mutex<Vec<Client>>,
    markets: Mutex<Vec<Option<Market>>>,
}

impl Doors {
    pub(super) async fn open(url: String) -> Self {
        let doors = Self {
            url,
            clients: Mutex::default(),
            markets: Mutex::default(),
        };
        for _ in 0..2 {
            let market = doors.start().await;
            locked(&doors.clients).push(market.nobody());
            locked(&doors.markets).push(Some(market));
        }
        doors
    }

    async fn start(&self) -> Market {
        let settings = [("REDIS_URL", &*self.url), ("LEASE_MS", "1000")];
        Market::start(&settings).await
    }

    /// Kills a process in the middle of its work.
    pub(super) async fn kill(&self, door: usize) {
        let market = locked(&self.markets)[door].take();
        market.expect("it runs").kill().await;
    }

    /// Starts a killed process again, on another port.
    pub(super) async fn restart(&self, door: usize) {
        let market = self.start().await;
        locked(&self.clients)[door] = market.nobody();
        locked(&self.markets)[door] = Some(market);
    }

    /// Sends a SIGTERM to the running processes, and waits for their end.
    pub(super) async fn close(&self) {
        let markets = std::mem::take(&mut *locked(&self.markets));
        for market in markets.into_iter().flatten() {
            market.terminate();
            assert!(market.ended().await.success());
        }
    }

    /// The answer of a process. `None` if the answer breaks off or never arrives, so that the outcome of the request is
    /// unknown.
    pub(super) async fn send(
        &self,
        door: usize,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        let client = locked(&self.clients)[door % 2]
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
