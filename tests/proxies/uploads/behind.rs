//! Refused uploads behind proxies: the proxy forwards the refusal, and does not count it as a failure of the server.
//!
//! Promises: P21.

use crate::{
    client::{Framing, get, upload},
    proxy::{HaProxy, Nginx, Proxy},
    service::{Service, layer},
};
use std::time::Duration;

const MB: usize = 1_000_000;

/// Asserts that a proxy forwards the refusal of each upload, which is of the account `client::FULL`, and that another
/// account's requests are always served.
async fn assert_refuses_one_account_and_serves_another(proxy: &Proxy, sizes: &[usize]) {
    for &bytes in sizes {
        for _ in 0..10 {
            let answer = upload(proxy.address(), Framing::Length, bytes).await;
            let answer = answer.unwrap_or_else(|error| panic!("{bytes}: {error}"));
            assert_eq!(answer.status, 429, "{bytes}: {}", proxy.log());
            for _ in 0..5 {
                let answer = get(proxy.address(), "ann").await.expect("an answer");
                assert_eq!(answer.status, 200, "{bytes}: {}", proxy.log());
            }
        }
    }
}

/// Two servers that read refused uploads of up to 8 MiB, the default, to their end.
async fn start_two() -> [Service; 2] {
    [Service::start().await, Service::start().await]
}

/// Two servers that read refused uploads of up to 50 MB to their end.
async fn start_two_with_high_bound() -> [Service; 2] {
    let start = async || {
        let layer = layer().with_max_drain(50 * MB as u64, Duration::from_secs(60));
        Service::with(|routes| routes.layer(layer)).await
    };
    [start().await, start().await]
}

#[tokio::test]
async fn behind_nginx_refused_uploads_of_one_account_fail_no_request_of_another() {
    let services = start_two().await;
    let servers = services.each_ref().map(|service| service.address);
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    let sizes = [MB / 10, MB, 5 * MB];
    assert_refuses_one_account_and_serves_another(&nginx.start().await, &sizes).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn behind_nginx_refused_uploads_within_a_raised_bound_fail_no_request_of_another_account() {
    let services = start_two_with_high_bound().await;
    let servers = services.each_ref().map(|service| service.address);
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    assert_refuses_one_account_and_serves_another(&nginx.start().await, &[50 * MB]).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn behind_nginx_refused_uploads_beyond_the_bound_fail_no_request_of_another_account() {
    let services = start_two().await;
    let servers = services.each_ref().map(|service| service.address);
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    assert_refuses_one_account_and_serves_another(&nginx.start().await, &[50 * MB]).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn behind_haproxy_refused_uploads_of_one_account_fail_no_request_of_another() {
    let services = start_two().await;
    let servers = services.each_ref().map(|service| service.address);
    let haproxy = HaProxy {
        servers: &servers,
        ..HaProxy::default()
    };
    let sizes = [MB / 10, MB, 5 * MB];
    assert_refuses_one_account_and_serves_another(&haproxy.start().await, &sizes).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn behind_haproxy_refused_uploads_within_a_raised_bound_fail_no_request_of_another_account() {
    let services = start_two_with_high_bound().await;
    let servers = services.each_ref().map(|service| service.address);
    let haproxy = HaProxy {
        servers: &servers,
        ..HaProxy::default()
    };
    assert_refuses_one_account_and_serves_another(&haproxy.start().await, &[50 * MB]).await;
}
