//! Which servers are trusted.

use super::{authority::Authority, blamed, refusal, secure_server::SecureServer, works};
use std::env;
use testing::child::child;
use tower_semaphore::{RedisSemaphore, redis::ConnectError};

/// What rustls says of a server, or OpenSSL.
fn says(refusal: &str, rustls: &str, openssl: &str) -> bool {
    let words = match cfg!(feature = "tls-rustls") {
        true => rustls,
        false => openssl,
    };
    refusal.contains(words)
}

fn says_that_it_is_not_trusted(refusal: &str) {
    let (rustls, openssl) = ("invalid peer certificate", "certificate verify failed");
    assert!(says(refusal, rustls, openssl), "{refusal}");
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
    says_that_it_is_not_trusted(&refusal);
}

#[tokio::test]
async fn a_server_with_the_certificate_of_another_host_is_refused_with_the_reason() {
    let server = SecureServer::with("elsewhere.example", &["--tls-auth-clients", "no"]).await;
    let refusal = refusal(connect(server.url(), server.authority.certificate()).await);
    assert!(
        says(&refusal, "elsewhere.example", "IP address mismatch"),
        "{refusal}"
    );
}

#[tokio::test]
async fn any_of_several_root_certificates_is_trusted() {
    let server = SecureServer::start().await;
    let bundle = Authority::new().certificate() + &server.authority.certificate();
    let store = connect(server.url(), bundle).await;
    works(&store.expect("one of them signed")).await;
}

/// The environment of the process below.
const URL: &str = "TOWER_SEMAPHORE_TLS_URL";

/// A process of its own, because an environment variable names the system's certificates.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_with_system_certificates() {
    let Ok(url) = env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let store = RedisSemaphore::connect(url).await;
        works(&store.expect("the system trusts the server")).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_the_system_are_trusted_unless_others_are_set() {
    let server = SecureServer::start().await;
    let refusal = refusal(RedisSemaphore::connect(server.url()).await);
    says_that_it_is_not_trusted(&refusal);
    let output = child(module_path!(), "a_process_with_system_certificates")
        .env(URL, server.url())
        .env("SSL_CERT_FILE", server.authority_file())
        .output()
        .expect("the process starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// redis-rs has the rule: `tls-native-tls` allows it, `tls-rustls` needs one more feature.
#[tokio::test]
async fn an_insecure_url_is_an_explicit_choice_or_an_error_of_the_url() {
    let server = SecureServer::start().await;
    let outcome = RedisSemaphore::connect(server.url() + "#insecure").await;
    match cfg!(feature = "tls-rustls") {
        true => assert_eq!(blamed(outcome), "url"),
        false => works(&outcome.expect("nothing is verified")).await,
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
