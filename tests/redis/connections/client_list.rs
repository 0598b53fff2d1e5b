//! What the server says of its clients.

use super::{BOUND, claim};
use std::{collections::HashMap, time::Duration};
use testing::{resp::Raw, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore};

/// The fields of one client in `CLIENT LIST`, by their names.
pub(crate) type Client = HashMap<String, String>;

/// All clients but the oracle itself.
pub(crate) async fn others(raw: &mut Raw) -> Vec<Client> {
    let own = raw.cmd(&["CLIENT", "ID"]).await.int().to_string();
    let list = raw.cmd(&["CLIENT", "LIST"]).await;
    let clients = list.text().lines().map(read);
    clients.filter(|client| client["id"] != own).collect()
}

/// Whether all clients, and there are some, have these values in these fields.
pub(crate) fn assert_all(clients: &[Client], fields: &[(&str, &str)]) {
    let has = |client: &Client| fields.iter().all(|(name, value)| client[*name] == *value);
    assert!(
        !clients.is_empty() && clients.iter().all(has),
        "{clients:?}"
    );
}

fn read(line: &str) -> Client {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Has a waiter granted by a message, and returns the clients that the store had meanwhile: its
/// own runtime's connection, the keeper's, and one that is subscribed. The store's lease has to be
/// a minute, so that no poll can be what grants it in time.
pub(crate) async fn clients_of_a_notified_waiter(
    store: &RedisSemaphore,
    raw: &mut Raw,
) -> Vec<Client> {
    let held = store.acquire(claim()).await.expect("there is room");
    let waiter = tokio::spawn(store.acquire(claim().with_wait(Duration::from_secs(60))));
    eventually("the store is subscribed", BOUND, async || {
        others(raw).await.iter().any(|client| client["sub"] == "1")
    })
    .await;
    // A new subscription is a reason to poll, and the poll comes before the release.
    settled(raw).await;
    let clients = others(raw).await;
    assert!(held.release().await);
    let granted = tokio::time::timeout(BOUND, waiter).await;
    let granted = granted.expect("it is granted in time");
    drop(granted.expect("it did not panic").expect("it is granted"));
    assert!(clients.len() >= 3, "{clients:?}");
    clients
}

/// Waits until a second has passed in which no script ran.
async fn settled(raw: &mut Raw) {
    let mut last = None;
    eventually("the waiter is quiet", BOUND, async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let calls = raw.commandstats().await.get("evalsha").copied();
        let quiet = calls == last;
        last = calls;
        quiet
    })
    .await;
}
