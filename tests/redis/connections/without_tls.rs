//! A build without a TLS feature.

use super::{blamed, causes};
use tower_semaphore::{RedisSemaphore, redis::ConnectError};

#[tokio::test]
async fn a_tls_url_blames_the_url_and_names_the_missing_features() {
    let outcome = RedisSemaphore::connect("rediss://:secret@127.0.0.1:1/").await;
    let error = outcome.expect_err("there is no TLS");
    let said = causes(&error);
    assert!(
        said.contains("tls-rustls") && said.contains("tls-native-tls"),
        "{said}"
    );
    assert!(!format!("{said} {error:?}").contains("secret"), "{said}");
    assert_eq!(blamed(Err(error)), "url");
}

#[tokio::test]
async fn what_else_is_wrong_with_a_url_is_not_taken_for_missing_tls() {
    let outcome = RedisSemaphore::connect("redis://127.0.0.1:1/not-a-number").await;
    let Err(error @ ConnectError::Setting { name: "url", .. }) = outcome else {
        panic!("the URL is not blamed: {outcome:?}");
    };
    assert!(!causes(&error).contains("tls-rustls"), "{error}");
}
