//! The status that gRPC clients expect: in trailers, or in the head of a response without a body.

use crate::semaphore::PermitLost;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, Version,
    header::{self, CONTENT_TYPE, TE},
    request::Parts,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The call may be repeated unchanged, elsewhere or later.
pub(super) const UNAVAILABLE: &str = "14";

const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The characters that the gRPC protocol wants percent-encoded in a `grpc-message`.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// The media type of gRPC. Its trailers are those of HTTP.
const GRPC: &str = "application/grpc";

/// The media types of gRPC-Web, whose trailers are in the body unless the response has no body.
const GRPC_WEB: [&str; 2] = ["application/grpc-web", "application/grpc-web-text"];

/// The content type of a gRPC or gRPC-Web request; `None` for other requests.
///
/// Only a POST with such a content type counts: a refusal has status 200, so a shared cache could store the refusal of
/// a GET for all clients.
pub(super) fn content_type(parts: &Parts) -> Option<&HeaderValue> {
    let headers = &parts.headers;
    let kind = media_type(headers).filter(|_| parts.method == Method::POST)?;
    let is_grpc = equals(kind, GRPC) && takes_trailers(parts);
    let is_web = GRPC_WEB.iter().any(|web| equals(kind, web));
    (is_grpc || is_web).then(|| headers.get(CONTENT_TYPE))?
}

/// True unless an HTTP/2 request lacks `te: trailers`, which every gRPC client sends. Proxies that translate to HTTP/1
/// may remove the header.
fn takes_trailers(parts: &Parts) -> bool {
    let mut announced = parts.headers.get_all(TE).iter();
    parts.version < Version::HTTP_2 || announced.any(|value| equals(value.as_bytes(), "trailers"))
}

/// True if a response with this head ends with a gRPC status in HTTP trailers.
pub(crate) fn has_trailers(head: &HeaderMap) -> bool {
    media_type(head).is_some_and(|kind| equals(kind, GRPC))
}

/// The media type, without the message format or the parameters that may follow.
fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let is_end = |byte: &u8| matches!(byte, b'+' | b';' | b' ' | b'\t');
    headers.get(CONTENT_TYPE)?.as_bytes().split(is_end).next()
}

/// Compares without case.
fn equals(value: &[u8], expected: &str) -> bool {
    value.eq_ignore_ascii_case(expected.as_bytes())
}

/// A gRPC response of the kind `Trailers-Only`: its status is in the head, its body is empty.
pub(super) fn response(
    content_type: HeaderValue,
    status: &'static str,
    message: &str,
) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.headers_mut() = trailers(status, message);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// The trailers of a call whose permit was lost while its response streamed.
pub(crate) fn lost() -> HeaderMap {
    trailers(UNAVAILABLE, &PermitLost.to_string())
}

fn trailers(status: &'static str, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let message = utf8_percent_encode(message, GRPC_MESSAGE).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// Adds `Retry-After` in the form that the retries of gRPC clients follow: milliseconds, in 31 bits.
pub(super) fn push_back(headers: &mut HeaderMap) {
    let seconds = headers.get(header::RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<i32>().ok());
    if let Some(seconds) = seconds {
        headers.insert(PUSHBACK, seconds.saturating_mul(1_000).into());
    }
}
