//! An `EventSource` that is refused: with the response of the guide's recipe, and with a plain 429.
//!
//! Promises: P21.

use axum::{
    Router,
    http::header::CONTENT_TYPE,
    response::{
        Html, IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::get,
};
use browser::browser::Browser;
use futures_util::{StreamExt, stream};
use std::convert::Infallible;
use tokio::net::TcpListener;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, Rejection, Semaphore, key};

async fn events() -> Response {
    let hello = stream::iter([Ok::<_, Infallible>(Event::default().data("hello"))]);
    Sse::new(hello.chain(stream::pending())).into_response()
}

/// The recipe: an event stream that ends at once, with the time after which the browser must reconnect.
fn reconnect_later(rejection: Rejection) -> Response {
    match rejection.retry_after() {
        Some(time) => {
            let retry = format!("retry: {}\n\n", time.as_millis());
            ([(CONTENT_TYPE, "text/event-stream")], retry).into_response()
        }
        None => rejection.into_response().into_response(),
    }
}

#[tokio::test]
async fn an_event_source_reconnects_after_the_recipe_s_refusal_and_not_after_a_429() {
    let store = MemorySemaphore::new();
    let held = store.acquire(Claim::new("ann").with_limit(1)).await;
    let limit = ConcurrencyLimitLayer::new(1, key::fixed("ann"), store);
    let app = Router::new()
        .route("/", get(async || Html("<title>events</title>")))
        .route("/plain", get(events).layer(limit.clone()))
        .route(
            "/recipe",
            get(events).layer(limit.with_rejection(reconnect_later)),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });

    let browser = Browser::start().await;
    browser.open(&format!("http://{address}/")).await;
    browser.run(LISTEN, &[]).await;
    let is_closed = "plain.readyState === EventSource.CLOSED";
    browser.shows("a 429 ends it", is_closed).await;
    browser
        .shows("the recipe's is refused twice", "refusals > 1")
        .await;
    drop(held);
    browser.shows("it is admitted", "heard === 'hello'").await;
    browser.shows("the other stays closed", is_closed).await;
}

const LISTEN: &str = "
    window.plain = new EventSource('/plain');
    const recipe = new EventSource('/recipe');
    window.refusals = 0;
    window.heard = '';
    recipe.onerror = () => window.refusals += 1;
    recipe.onmessage = (event) => window.heard = event.data;
";
