//! The RateLimit fields (draft-ietf-httpapi-ratelimit-headers-10): what a client may know of its
//! limit, on admitted and refused responses alike.

use crate::semaphore::Policy;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What a quoted string of a structured field (RFC 9651) cannot hold as it is.
const UNQUOTABLE: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// Of how many units in use the fields are kept: most keys use few.
const KEPT: u32 = 32;

/// The fields of a layer's own policy and limit, written once.
pub(crate) struct Fields {
    policy: Policy,
    limit: u32,
    quota: Option<HeaderValue>,
    /// What is left, by how much is in use.
    left: Vec<Option<HeaderValue>>,
}

impl Fields {
    pub(crate) fn new(policy: Policy, limit: u32) -> Self {
        let left = |used| left(&policy, limit - used);
        Self {
            quota: quota(&policy, limit),
            left: (0..=limit.min(KEPT)).map(left).collect(),
            policy,
            limit,
        }
    }

    /// Adds a policy to the fields of an admitted response, beside those of other layers.
    pub(crate) fn append(&self, headers: &mut HeaderMap, policy: &Policy, limit: u32, rest: u32) {
        if limit != self.limit || *policy != self.policy {
            return append(headers, policy, limit, Some(rest));
        }
        add(headers, RATELIMIT_POLICY, self.quota.clone());
        let kept = self.left.get(limit.saturating_sub(rest) as usize);
        let value = kept.map_or_else(|| left(policy, rest), Clone::clone);
        add(headers, RATELIMIT, value);
    }
}

/// Adds one policy to the fields, beside those of other layers.
///
/// `remaining` is `None` when the store failed, so that nobody knows.
pub(crate) fn append(headers: &mut HeaderMap, policy: &str, limit: u32, remaining: Option<u32>) {
    add(headers, RATELIMIT_POLICY, quota(policy, limit));
    add(
        headers,
        RATELIMIT,
        remaining.and_then(|remaining| left(policy, remaining)),
    );
}

/// Percent encoding left only printable ASCII, so there always is a value.
fn quota(policy: &str, limit: u32) -> Option<HeaderValue> {
    let policy = utf8_percent_encode(policy, UNQUOTABLE);
    format!("\"{policy}\";q={limit};qu=\"concurrent-requests\"")
        .try_into()
        .ok()
}

fn left(policy: &str, remaining: u32) -> Option<HeaderValue> {
    let policy = utf8_percent_encode(policy, UNQUOTABLE);
    format!("\"{policy}\";r={remaining}").try_into().ok()
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.append(name, value);
    }
}
