//! Requests that wait for a permit behind proxies.
//!
//! Promises: P10, P14.

use crate::{
    client::{BOUND, Client, get, head},
    proxy::{HaProxy, Nginx, Proxy},
    service::Service,
};
use std::time::Duration;
use testing::{http_requests::limit, wait::eventually};
use tower_semaphore::{Claim, MemorySemaphore, Operate, Permit, Policy, Semaphore};

/// Takes the only permit of an account.
async fn hold(store: &MemorySemaphore, account: &str) -> Permit {
    let claim = Claim::new(account).with_limit(1);
    store.acquire(claim).await.expect("it is free")
}

/// Two statuses behind an nginx that waits one second for a response: that of a request that may wait `wait` for its
/// permit, and then that of another account's request. `server` has the parameters of nginx's servers.
async fn statuses_behind_nginx(wait: Duration, server: &str) -> [u16; 2] {
    let store = MemorySemaphore::new();
    let layer = limit(1, store.clone()).with_wait(wait);
    let service = async || Service::with(|routes| routes.layer(layer.clone())).await;
    let services = [service().await, service().await];
    let nginx = Nginx {
        servers: &services.each_ref().map(|service| service.address),
        server,
        location: "proxy_read_timeout 1s;",
        ..Nginx::default()
    };
    let nginx = nginx.start().await;
    let _held = hold(&store, "ann").await;
    let status = async |account| {
        let answer = get(nginx.address(), account).await;
        answer.expect("an answer").status
    };
    [status("ann").await, status("bob").await]
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_wait_beyond_the_timeout_of_the_proxy_takes_the_service_from_all() {
    // nginx gives up on both servers, one after the other, and has none left for the next request.
    let statuses = statuses_behind_nginx(BOUND, "").await;
    assert_eq!(statuses, [504, 502]);
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_wait_beyond_the_timeout_of_the_proxy_fails_alone_if_no_server_counts_as_failed() {
    let statuses = statuses_behind_nginx(BOUND, "max_fails=0").await;
    assert_eq!(statuses, [504, 200]);
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_wait_that_ends_before_the_timeout_of_the_proxy_is_refused() {
    let wait = Duration::from_millis(100);
    let statuses = statuses_behind_nginx(wait, "").await;
    assert_eq!(statuses, [429, 200]);
}

#[tokio::test]
#[ignore = "for the night"]
async fn haproxy_forwards_a_hang_up_if_it_is_asked_to() {
    let store = MemorySemaphore::new();
    let layer = limit(1, store.clone()).with_wait(BOUND);
    let service = Service::with(|routes| routes.layer(layer)).await;
    let proxy = async |listen| {
        let haproxy = HaProxy {
            servers: &[service.address],
            listen,
        };
        haproxy.start().await
    };
    let with_abort = proxy("option abortonclose").await;
    let default = proxy("").await;
    let wait_until = async |account: &str, waiting: usize| {
        eventually(&format!("{waiting} of {account} wait"), BOUND, async || {
            count_waiting(&store, account).await == waiting
        })
        .await;
    };

    let _held = [hold(&store, "ann").await, hold(&store, "bob").await];
    let clients = [
        send_request(&with_abort, "ann").await,
        send_request(&default, "bob").await,
    ];
    wait_until("ann", 1).await;
    wait_until("bob", 1).await;
    drop(clients);
    wait_until("ann", 0).await;
    assert_eq!(count_waiting(&store, "bob").await, 1);
}

async fn count_waiting(store: &MemorySemaphore, account: &str) -> usize {
    let usage = store.usage(&Policy::DEFAULT, &account.into()).await;
    usage.expect("a store in memory").waiting.len()
}

/// Sends a request, and returns its client, which has not read the response.
async fn send_request(proxy: &Proxy, account: &str) -> Client {
    let mut client = Client::connect(proxy.address()).await;
    let request = head("GET", "/", account) + "\r\n";
    client.write(&request).await.expect("a proxy that reads");
    client
}
