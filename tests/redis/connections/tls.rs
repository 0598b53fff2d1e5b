//! TLS: trusted servers, client certificates, and the same behaviour as without TLS.
//!
//! Promises: P20.

use super::{
    BOUND, assert_works, blamed, causes,
    chosen::{all_have, assert_all, clients_of_a_notified_waiter, others},
    claim, refusal,
};
use std::{
    env,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{
    child::child,
    example::{address, command},
    redis::secure::{Authority, SecureServer, Signed},
    stores::connected,
    wait::eventually,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower_semaphore::{
    RedisSemaphore, Semaphore,
    redis::{Builder, ConnectError, Kind, client::Client},
};

fn rooted(server: &SecureServer) -> Builder {
    RedisSemaphore::builder().root_certificate(server.authority.certificate())
}

async fn store(server: &SecureServer) -> RedisSemaphore {
    connected(async || rooted(server).connect(server.url()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_reconnects_over_tls() {
    let mut server = SecureServer::start().await;
    let store = store(&server).await;
    assert_works(&store).await;
    for client in others(&mut server.raw).await {
        server
            .raw
            .cmd(&["CLIENT", "KILL", "ID", &client["id"]])
            .await;
    }
    eventually("it serves again", BOUND, async || {
        store.acquire(claim()).await.is_ok()
    })
    .await;
    // A store of another test may connect to the server's plain port, if its own server used that port before.
    eventually("all clients use TLS", BOUND, async || {
        let clients = others(&mut server.raw).await;
        all_have(&clients, &[("laddr", &server.address)])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_only_tls_1_2_is_served() {
    let args = ["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.2"];
    let server = SecureServer::with("127.0.0.1", &args).await;
    assert_works(&store(&server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_a_password_and_a_database_work_over_tls() {
    let mut server = SecureServer::start().await;
    let rule = [
        "ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all",
    ];
    server.raw.cmd(&rule).await;
    let url = format!("rediss://ann:secret@{}/3", server.address);
    let store = connected(async || rooted(&server).connect(&*url).await).await;
    assert_works(&store).await;
    let clients = others(&mut server.raw).await;
    assert_all(&clients, &[("user", "ann"), ("db", "3")]);
}

/// True if the refusal has the wording of the TLS library in use.
fn has_wording(refusal: &str, rustls: &str, openssl: &str) -> bool {
    let words = match cfg!(feature = "tls-rustls") {
        true => rustls,
        false => openssl,
    };
    refusal.contains(words)
}

fn assert_untrusted(refusal: &str) {
    let (rustls, openssl) = ("invalid peer certificate", "certificate verify failed");
    assert!(has_wording(refusal, rustls, openssl), "{refusal}");
}

async fn connect(url: String, root: String) -> Result<RedisSemaphore, ConnectError> {
    let builder = RedisSemaphore::builder().root_certificate(root);
    builder.connect(url).await
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused_with_the_reason() {
    let server = SecureServer::start().await;
    let other = Authority::new().certificate();
    let refusal = refusal(connect(server.url(), other).await);
    assert_untrusted(&refusal);
}

#[tokio::test]
async fn a_server_with_the_certificate_of_another_host_is_refused_with_the_reason() {
    let server = SecureServer::with("elsewhere.example", &["--tls-auth-clients", "no"]).await;
    let outcome = connect(server.url(), server.authority.certificate()).await;
    let setting = outcome.as_ref().err().and_then(ConnectError::setting);
    assert_eq!(setting, Some("url"));
    let refusal = refusal(outcome);
    assert!(
        has_wording(&refusal, "elsewhere.example", "IP address mismatch"),
        "{refusal}"
    );
}

#[tokio::test]
async fn any_of_several_root_certificates_is_trusted() {
    let server = SecureServer::start().await;
    let bundle = Authority::new().certificate() + &server.authority.certificate();
    let store = connect(server.url(), bundle).await;
    assert_works(&store.expect("one of them signed")).await;
}

/// The environment variable with the URL for the process below.
const URL: &str = "TOWER_SEMAPHORE_TLS_URL";

/// Runs as a separate process, because the test sets `SSL_CERT_FILE`, which replaces the system's certificates.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_with_system_certificates() {
    let Ok(url) = env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let store = RedisSemaphore::connect(url).await;
        assert_works(&store.expect("the system trusts the server")).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_the_system_are_trusted_unless_others_are_set() {
    let server = SecureServer::start().await;
    let refusal = refusal(RedisSemaphore::connect(server.url()).await);
    assert_untrusted(&refusal);
    let output = child(module_path!(), "a_process_with_system_certificates")
        .env(URL, server.url())
        .env("SSL_CERT_FILE", server.authority_file())
        .output()
        .expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// redis-rs defines the rule: `tls-native-tls` allows such a URL, `tls-rustls` needs another feature.
#[tokio::test]
async fn an_insecure_url_is_an_explicit_choice_or_an_error_of_the_url() {
    let server = SecureServer::start().await;
    let outcome = RedisSemaphore::connect(server.url() + "#insecure").await;
    match cfg!(feature = "tls-rustls") {
        true => assert_eq!(blamed(outcome), "url"),
        false => assert_works(&outcome.expect("nothing is verified")).await,
    }
}

#[tokio::test]
async fn root_certificates_that_cannot_work_are_named() {
    let url = "rediss://127.0.0.1:1/";
    let builder = RedisSemaphore::builder;
    let torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for pem in ["", "not PEM", torn] {
        let outcome = builder().root_certificate(pem).connect(url).await;
        assert_eq!(blamed(outcome), "root_certificate", "{pem}");
    }
    let right = builder().root_certificate(Authority::new().certificate());
    let outcome = right.connect("redis://127.0.0.1:1/").await;
    assert_eq!(blamed(outcome), "root_certificate");
}

async fn strict_server() -> SecureServer {
    SecureServer::with("127.0.0.1", &["--tls-auth-clients", "yes"]).await
}

async fn connect_as(server: &SecureServer, own: Signed) -> Result<RedisSemaphore, ConnectError> {
    let builder = rooted(server).lease(Duration::from_secs(60));
    let builder = builder.client_certificate(own.certificate, own.key);
    builder.connect(server.url()).await
}

/// Waits for a refusal with its reason. A connection may end before the reason has been read.
async fn refused(connect: impl AsyncFn() -> Result<RedisSemaphore, ConnectError>) {
    eventually("the reason is read", BOUND, async || {
        match connect().await {
            Err(error) if error.kind() == Kind::Unavailable => false,
            outcome => !refusal(outcome).is_empty(),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_shows_the_client_certificate() {
    let mut server = strict_server().await;
    let own = server.authority.sign("client.example");
    let store = connect_as(&server, own).await.expect("it is let in");
    let clients = clients_of_a_notified_waiter(&store, &mut server.raw).await;
    assert_all(&clients, &[("laddr", &server.address)]);
}

#[tokio::test]
async fn without_a_client_certificate_a_server_that_requires_one_refuses() {
    let server = strict_server().await;
    refused(async || rooted(&server).connect(server.url()).await).await;
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_refused() {
    let server = strict_server().await;
    let own = Authority::new().sign("client.example");
    refused(async || connect_as(&server, own.clone()).await).await;
}

#[tokio::test]
async fn client_certificates_that_cannot_work_are_named() {
    let authority = Authority::new();
    let own = authority.sign("client.example");
    let key_of_another = authority.sign("client.example").key;
    for (certificate, key) in [
        (own.certificate.as_str(), key_of_another.as_str()),
        (&own.certificate, "not PEM"),
        ("not PEM", &own.key),
        (&own.key, &own.certificate),
    ] {
        let builder = RedisSemaphore::builder().client_certificate(certificate, key);
        let outcome = builder.connect("rediss://127.0.0.1:1/").await;
        assert_eq!(blamed(outcome), "client_certificate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_gets_the_certificates() {
    let server = SecureServer::start().await;
    let count = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&count);
    let builder = rooted(&server).connector(move |info, config| {
        calls.fetch_add(1, Relaxed);
        async move {
            let client = Client::open(info)?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        }
    });
    assert_works(&connected(async || builder.clone().connect(server.url()).await).await).await;
    assert!(count.load(Relaxed) > 1);
}

#[tokio::test]
async fn a_private_key_is_in_no_error_and_in_no_debug_output() {
    let server = SecureServer::start().await;
    let own = server.authority.sign("client.example");
    let secret = own.key.lines().nth(1).expect("it has lines").to_owned();
    let key_of_another = server.authority.sign("client.example").key;
    let builder = RedisSemaphore::builder().client_certificate(own.certificate, own.key.as_str());
    let wrong = RedisSemaphore::builder().client_certificate(key_of_another, own.key);
    let wrong = wrong.connect(server.url()).await.expect_err("they differ");
    let text = format!("{builder:?} {wrong:?} {}", causes(&wrong));
    assert!(
        !text.contains(&secret) && !text.contains("PRIVATE"),
        "{text}"
    );
}

/// The status line of the answer to a request of `ann`.
async fn status(url: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let request = "GET /market HTTP/1.1\r\nhost: market\r\nx-account-id: ann\r\n\
                   connection: close\r\n\r\n";
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .await
        .expect("it is text");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_market_trusts_the_authority_of_its_setting() {
    let mut server = SecureServer::start().await;
    let authority = server.authority_file();
    let authority = authority.to_str().expect("it is text");
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("REDIS_CA", authority), ("PORT", "0")];
    let mut market = command("market", &settings);
    let mut market = market.stdout(Stdio::piped()).spawn().expect("it starts");
    let market_url = address(&mut market).await;
    assert_eq!(status(&market_url).await, "HTTP/1.1 200 OK");
    let clients = server.raw.cmd(&["KEYS", "semaphore:*"]).await;
    assert!(!clients.array().is_empty(), "the permits are elsewhere");
}

#[tokio::test]
async fn a_market_without_the_setting_does_not_trust_the_authority() {
    let server = SecureServer::start().await;
    let url = server.url();
    let mut market = command("market", &[("REDIS_URL", &*url), ("PORT", "0")]);
    let output = market.output().await.expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.starts_with("REDIS_URL: "),
        "{text}"
    );
}
