//! The document: one file, without any other.
//!
//! Its style and its script are files of their own here, and are put in when the first visitor
//! comes. The policy in its header lets a browser run exactly these two, by their digests.

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

/// A page, and the headers that depend on it.
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

/// `GET /`: the page. A browser that has it asks whether it is still the same.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    let Document { html, policy, tag } = &*DOCUMENT;
    let kept = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
    if headers.get(IF_NONE_MATCH).is_some_and(|had| had == tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let safe = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The account is in the URL.
        (REFERRER_POLICY, "no-referrer"),
    ];
    (kept, safe, html.clone()).into_response()
}

/// What the page may do: run its own script, and talk to this market. Its streams go to names under
/// `localhost`, see `script/feed.js`.
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
