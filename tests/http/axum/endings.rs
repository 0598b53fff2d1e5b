//! The ways in which a server ends a response: each frees the permit, once.

use super::{
    client::{BOTH, Client, read},
    server::Server,
};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use testing::ledger::Page;

const FREED: Page = Page {
    granted: 1,
    returned: 1,
    most: 1,
};

/// Five are admitted again and a sixth is not.
async fn assert_all_five_are_free(server: &mut Server, client: &Client) {
    let before = server.page();
    assert_eq!(before.granted, before.returned);
    let five = client.five().await;
    let mut feeds = Vec::new();
    for response in &five {
        assert_eq!(response.status(), StatusCode::OK);
        feeds.push(server.feed().await);
    }
    let sixth = client.get("/full").await;
    assert_eq!(sixth.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.page().most, 5);
}

#[tokio::test]
async fn a_body_that_was_read_is_whole_and_frees_the_permit() {
    for http in BOTH {
        for (path, bytes) in [
            ("/full", "all of it"),
            ("/empty", ""),
            ("/no-content", ""),
            ("/not-modified", ""),
        ] {
            let mut server = Server::start().await;
            let client = Client::new(http, &server);
            assert_eq!(read(client.get(path).await).await.0, bytes);
            assert_eq!(server.page(), FREED, "{http:?} {path}");
            assert_all_five_are_free(&mut server, &client).await;
        }
    }
}

#[tokio::test]
async fn a_full_body_keeps_its_content_length() {
    for http in BOTH {
        let server = Server::start().await;
        let response = Client::new(http, &server).get("/full").await;
        assert_eq!(response.headers()["content-length"], "9");
    }
}

#[tokio::test]
async fn trailers_reach_the_client() {
    let server = Server::start().await;
    let client = Client::new(super::client::Http::Two, &server);
    let (bytes, trailers) = read(client.get("/trailers").await).await;
    assert_eq!(bytes, "one");
    assert_eq!(trailers.unwrap()["x-checksum"], "42");
    assert_eq!(server.page(), FREED);
}

#[tokio::test]
async fn the_end_of_a_stream_frees_the_permit() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.get("/stream").await;
        drop(server.feed().await);
        read(response).await;
        assert_eq!(server.page(), FREED, "{http:?}");
        assert_all_five_are_free(&mut server, &client).await;
    }
}

#[tokio::test]
async fn an_error_in_the_body_reaches_the_client_and_frees_the_permit() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.send(Method::GET, "/fail", "alice").await;
        if let Ok(response) = response {
            assert!(response.into_body().collect().await.is_err());
        }
        server.holds(0).await;
        assert_eq!(server.page(), FREED, "{http:?}");
        assert_all_five_are_free(&mut server, &client).await;
    }
}

#[tokio::test]
async fn a_head_request_frees_the_permit_although_its_body_would_never_end() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.send(Method::HEAD, "/stream", "alice").await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let _feed = server.feed().await;
        server.holds(0).await;
        assert_eq!(server.page(), FREED, "{http:?}");
        assert_all_five_are_free(&mut server, &client).await;
    }
}

#[tokio::test]
async fn a_panic_in_the_handler_frees_the_permit() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.send(Method::GET, "/panic", "alice").await;
        assert!(response.is_err());
        server.holds(0).await;
        assert_eq!(server.page(), FREED, "{http:?}");
        assert_all_five_are_free(&mut server, &client).await;
    }
}

#[tokio::test]
async fn a_panic_in_the_body_frees_the_permit() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.send(Method::GET, "/panic-in-body", "alice").await;
        if let Ok(response) = response {
            assert!(response.into_body().collect().await.is_err());
        }
        server.holds(0).await;
        assert_eq!(server.page(), FREED, "{http:?}");
        assert_all_five_are_free(&mut server, &client).await;
    }
}
