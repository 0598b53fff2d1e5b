//! Sellers and buyers, and the answers that they got.

use super::Processes;
use http::Method;
use serde_json::{Value, json};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Sellers wait for buyers once this many items are for sale.
const FOR_SALE: usize = 60;

/// Stands for the status of an answer that did not arrive.
pub(super) const NO_ANSWER: u16 = 0;

/// The state that all traders share.
#[derive(Clone)]
pub(super) struct Shared {
    processes: Arc<Processes>,
    /// One permit for each further item that may be listed. Sellers take permits, and sales add them.
    room: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(processes: Arc<Processes>) -> Self {
        Self {
            processes,
            room: Arc::new(Semaphore::new(FOR_SALE)),
            stop: CancellationToken::new(),
        }
    }
}

/// The answers that one trader got.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The ids of the listed items.
    pub(super) listed: Vec<String>,
    /// The answers to completed purchases.
    pub(super) bought: Vec<Value>,
    /// The id and the buyer of each purchase whose outcome is unknown.
    pub(super) unknown: HashSet<(String, String)>,
    /// The number of purchases that were refused because the item was sold already.
    pub(super) late: usize,
}

/// A trader, which sends its requests to the processes in turn.
struct Trader {
    shared: Shared,
    name: String,
    /// The number of requests sent.
    requests: usize,
    answers: Answers,
}

impl Trader {
    fn new(shared: Shared, name: String) -> Self {
        Self {
            shared,
            name,
            requests: 0,
            answers: Answers::default(),
        }
    }

    /// Sends a request, and retries it while the answer is 429: the permit of the previous request may not be released
    /// yet, and a killed process holds its permits for a lease. Returns [`NO_ANSWER`] if none arrived.
    async fn send(
        &mut self,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        loop {
            self.requests += 1;
            let processes = &self.shared.processes;
            match processes
                .send(self.requests, account, method.clone(), path, body)
                .await
            {
                Some((429, _)) => {}
                Some(answer) => return answer,
                None => return (NO_ANSWER, Value::Null),
            }
        }
    }
}

/// Lists the ten items with which an account begins, for one new account after another.
pub(super) async fn sell(shared: Shared, n: usize) -> Answers {
    let mut seller = Trader::new(shared, format!("s{n}"));
    for account in 0.. {
        for item in 1..=10 {
            let room = Arc::clone(&seller.shared.room);
            tokio::select! {
                () = seller.shared.stop.cancelled() => return seller.answers,
                room = room.acquire() => room.expect("it stays open").forget(),
            }
            let account = format!("{}-{account}", seller.name);
            seller.list(&account, item).await;
        }
    }
    seller.answers
}

impl Trader {
    async fn list(&mut self, account: &str, item: usize) {
        // Cheap enough that an account can buy many, and in no order.
        let price = 1 + (item * 7 + self.requests) % 50;
        let offer = json!({"item": format!("{account}-{item}"), "price": price}).to_string();
        let mut may_be_listed = false;
        while !self.shared.stop.is_cancelled() {
            let (status, answer) = self
                .send(account, Method::POST, "/market/items", &offer)
                .await;
            match status {
                201 => return self.answers.listed.push(text(&answer["id"])),
                NO_ANSWER | 503 => may_be_listed = true,
                409 if may_be_listed => return,
                status => panic!("{status} for {offer}: {answer}"),
            }
        }
    }
}

/// Buys cheap items, so that buyers compete for them. Goes on with another account when one has too few coins.
pub(super) async fn buy(shared: Shared, n: usize) -> Answers {
    let mut buyer = Trader::new(shared, format!("b{n}"));
    for account in 0.. {
        let account = format!("{}-{account}", buyer.name);
        while buyer.buy_one(&account).await {
            if buyer.shared.stop.is_cancelled() {
                return buyer.answers;
            }
        }
    }
    buyer.answers
}

impl Trader {
    /// Tries to buy an item. Returns false if the account has too few coins for it.
    async fn buy_one(&mut self, account: &str) -> bool {
        let (status, market) = self.send(account, Method::GET, "/market", "").await;
        assert!(
            matches!(status, NO_ANSWER | 200 | 503),
            "{status}: {market}"
        );
        // The market lists the cheapest items first.
        let cheap = market.as_array().map_or(0, Vec::len).min(4);
        let Some(choice) = self.requests.checked_rem(cheap) else {
            return true;
        };
        let id = text(&market[choice]["id"]);
        let path = format!("/market/items/{id}/purchase");
        let (status, answer) = self.send(account, Method::POST, &path, "").await;
        match status {
            200 => self.answers.bought.push(answer),
            409 if answer["detail"] == "the account has too few coins" => return false,
            409 => self.answers.late += 1,
            NO_ANSWER | 503 => drop(self.answers.unknown.insert((id, account.to_owned()))),
            status => panic!("{status} for {path}: {answer}"),
        }
        // With an unknown outcome the item may have been sold. If it was not, one more item for sale does no harm.
        let has_room = matches!(status, NO_ANSWER | 200 | 503);
        self.shared.room.add_permits(usize::from(has_room));
        true
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().expect("it is text").to_owned()
}
