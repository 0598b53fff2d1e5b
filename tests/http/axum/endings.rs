//! The ways in which a response ends. Each releases the permit exactly once.
//!
//! Promises: P9.

use super::{
    client::{BOTH, Client, Http, head, open, read},
    server::Server,
};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use testing::ledger::Page;
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// One permit was granted and has been released.
const FREED: Page = Page {
    granted: 1,
    returned: 1,
    most: 1,
};

async fn assert_freed(server: &Server, case: &str) {
    server.wait_until_held(0).await;
    assert_eq!(server.page(), FREED, "{case}");
}

/// Asserts that five requests are admitted again and a sixth is refused.
async fn assert_all_five_are_free(server: &Server, client: &Client) {
    let five = client.five().await;
    assert!(five.iter().all(|response| response.status() == 200));
    let sixth = client.get("/whole").await;
    assert_eq!(sixth.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.page().most, 5);
}

#[tokio::test]
async fn a_body_that_was_read_is_whole_and_frees_the_permit() {
    for http in BOTH {
        for (path, bytes) in [
            ("/whole", "all of it"),
            ("/empty", ""),
            ("/no-content", ""),
            ("/not-modified", ""),
            ("/trailers", "one"),
        ] {
            let server = Server::start().await;
            let client = Client::new(http, &server);
            let response = client.get(path).await;
            // `all of it` has nine bytes.
            let length = response.headers().get("content-length").cloned();
            assert!(path != "/whole" || length.is_some_and(|length| length == "9"));
            let (body, trailers) = read(response).await;
            assert_eq!(body, bytes, "{path}");
            // An HTTP/1.1 client gets no trailers unless it asks for them.
            let has_trailers = path == "/trailers" && matches!(http, Http::Two);
            let checksum = trailers.map(|trailers| trailers["x-checksum"].clone());
            assert_eq!(checksum, has_trailers.then(|| "42".parse().expect("ASCII")));
            assert_eq!(server.page(), FREED, "{http:?} {path}");
            assert_all_five_are_free(&server, &client).await;
        }
    }
}

#[tokio::test]
async fn an_error_or_a_panic_reaches_the_client_and_frees_the_permit() {
    for http in BOTH {
        for path in ["/fail", "/panic", "/panic-in-body"] {
            let server = Server::start().await;
            let client = Client::new(http, &server);
            if let Ok(response) = client.send(Method::GET, path, "alice").await {
                assert!(path != "/panic", "there is no head");
                assert!(response.into_body().collect().await.is_err(), "{path}");
            }
            assert_freed(&server, &format!("{http:?} {path}")).await;
            assert_all_five_are_free(&server, &client).await;
        }
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
        assert_freed(&server, &format!("{http:?}")).await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_the_permit() {
    for way in ["close", "close its half", "reset"] {
        for (path, has_head) in [("/stream", true), ("/never", false)] {
            let mut server = Server::start().await;
            let mut socket = open(&server, path).await;
            if has_head {
                assert!(head(&mut socket).await.starts_with("HTTP/1.1 200 "));
            }
            server.wait_until_held(1).await;
            let _half = hang_up(socket, way).await;
            assert_freed(&server, way).await;
            assert!(!has_head || server.feed().await.is_closed());
        }
    }
}

/// Hangs up in the given way. Returns the half of the socket that stays open, if any.
async fn hang_up(mut socket: TcpStream, way: &str) -> Option<TcpStream> {
    match way {
        "close its half" => {
            socket.shutdown().await.expect("it is open");
            return Some(socket);
        }
        "reset" => socket.set_zero_linger().expect("it is a TCP socket"),
        _ => {}
    }
    None
}

#[tokio::test]
async fn a_request_or_a_response_that_the_client_drops_frees_the_permit() {
    for http in BOTH {
        let mut server = Server::start().await;
        let client = Client::new(http, &server);
        let response = client.get("/stream").await;
        assert_eq!(server.held(), 1);
        drop(response);
        assert_freed(&server, &format!("{http:?}, a response")).await;
        assert!(server.feed().await.is_closed());

        let server = Server::start().await;
        let client = Client::new(http, &server);
        tokio::select! {
            _ = client.send(Method::GET, "/never", "alice") => panic!("an answer"),
            () = server.wait_until_held(1) => {}
        }
        assert_freed(&server, &format!("{http:?}, a request")).await;
    }
}

#[tokio::test]
async fn a_reset_stream_frees_its_own_permit_only() {
    let mut server = Server::start().await;
    let client = Client::new(Http::Two, &server);
    let mut live = client.get("/stream").await;
    let feed = server.feed().await;
    let reset = client.get("/stream").await;
    assert_eq!(server.held(), 2);
    drop(reset);
    server.wait_until_held(1).await;
    let sent = feed.send(Ok(Bytes::from_static(b"still here"))).await;
    sent.expect("the server reads");
    let frame = live.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "still here");
    assert_eq!(server.page().returned, 1);
}

#[tokio::test]
async fn a_flood_of_reset_streams_leaves_nothing_held() {
    let mut server = Server::start().await;
    let client = Client::new(Http::Two, &server);
    for round in 1..=20 {
        drop(client.five().await);
        server.wait_until_held(0).await;
        assert_eq!(server.page().returned, 5 * round);
    }
    assert!(server.feed().await.is_closed());
    assert_eq!(server.page().most, 5);
}
