//! The RateLimit fields (draft-ietf-httpapi-ratelimit-headers-10): what a client may know of its
//! limit, on admitted and refused responses alike.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What a quoted string of a structured field (RFC 9651) cannot hold as it is.
const UNQUOTABLE: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// Adds one policy to the fields, beside those of other layers.
///
/// `remaining` is `None` when the store failed, so that nobody knows.
pub(crate) fn append(headers: &mut HeaderMap, policy: &str, limit: u32, remaining: Option<u32>) {
    let policy = utf8_percent_encode(policy, UNQUOTABLE);
    let quota = format!("\"{policy}\";q={limit};qu=\"concurrent-requests\"");
    insert(headers, RATELIMIT_POLICY, quota);
    if let Some(remaining) = remaining {
        insert(headers, RATELIMIT, format!("\"{policy}\";r={remaining}"));
    }
}

/// Percent encoding left only printable ASCII, so the value always fits.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(name, value);
    }
}
