//! The page's document: a single file.
//!
//! Its style and its script are separate source files, which are inserted when the first visitor comes. A header with
//! their digests lets a browser run exactly these two.

use axum::{
    body::Bytes,
    http::{
        HeaderMap, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
            REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(
    include_str!("script/dom.js"),
    include_str!("script/time.js"),
    include_str!("script/feed.js"),
    include_str!("script/permits.js"),
    include_str!("script/fleet.js"),
    include_str!("script/streams.js"),
    include_str!("script/trade.js"),
    include_str!("script/main.js"),
);

/// The page, and the headers that depend on it.
struct Document {
    html: Bytes,
    policy: String,
    tag: String,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let html = HTML
        .replace("/* page.css */", STYLE)
        .replace("/* page.js */", SCRIPT);
    Document {
        policy: policy(STYLE, SCRIPT),
        tag: format!("\"{}\"", digest(&html)),
        html: html.into(),
    }
});

/// `GET /`: the page. A browser that has cached it asks whether it has changed.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    let Document { html, policy, tag } = &*DOCUMENT;
    let cache_headers = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
    if headers
        .get(IF_NONE_MATCH)
        .is_some_and(|cached| cached == tag)
    {
        return (StatusCode::NOT_MODIFIED, cache_headers).into_response();
    }
    let content_headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The URL contains the account, so it must not be sent elsewhere.
        (REFERRER_POLICY, "no-referrer"),
    ];
    (cache_headers, content_headers, html.clone()).into_response()
}

/// The content security policy. The page may run its own script and connect to this market. Its streams use host names
/// under `localhost`, see `script/feed.js`.
fn policy(style: &str, script: &str) -> String {
    let (style, script) = (digest(style), digest(script));
    format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; \
         connect-src 'self' http://*.localhost:*; img-src data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'"
    )
}

fn digest(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}
