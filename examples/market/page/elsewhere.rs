//! Other host names of this machine.
//!
//! A browser opens at most six HTTP/1.1 connections to a host, and each stream occupies one while it runs. The feed and
//! five streams would use them all, so the page's sixth request would never be sent. The page therefore sends each
//! request to a separate name under `localhost`. To the browser that is another origin, which must be allowed here.

use axum::{
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Uri,
        header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HOST, ORIGIN, VARY},
    },
    middleware::Next,
    response::Response,
};

/// Lets this market's pages read answers that they fetched under another name of this machine.
pub(crate) async fn allow_own_origins(request: Request, next: Next) -> Response {
    let origin = allowed(request.headers());
    let mut response = next.run(request).await;
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static("retry-after, ratelimit, ratelimit-policy");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// The origin of a request, if the origin and the request's host are both this machine, at the same port.
fn allowed(headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let from: Uri = origin.to_str().ok()?.parse().ok()?;
    let to: Uri = headers.get(HOST)?.to_str().ok()?.parse().ok()?;
    let same = from.port_u16() == to.port_u16();
    (same && is_this_machine(&from) && is_this_machine(&to)).then(|| origin.clone())
}

fn is_this_machine(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    host == "localhost" || host.ends_with(".localhost") || host == "127.0.0.1"
}
