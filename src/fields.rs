//! The RateLimit fields of draft-ietf-httpapi-ratelimit-headers, on admitted and refused responses
//! alike: they show a client its limit and the units that remain.

use crate::semaphore::{Level, Policy};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{borrow::Cow, fmt, time::Duration};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Characters that a quoted string of a structured field (RFC 9651) cannot hold unescaped.
const UNQUOTABLE: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// The fields are cached for up to this number of units in use, because most keys use few.
const CACHED: u32 = 32;

/// The unit of a limit, unless a layer sets another one.
const UNIT: &str = "concurrent-requests";

/// The fields of a layer's own policy and limit, formatted once.
pub(crate) struct Fields {
    policy: Policy,
    limit: u32,
    unit: Cow<'static, str>,
    /// The field `RateLimit-Policy`.
    quota: Option<HeaderValue>,
    /// The field `RateLimit`, indexed by the units in use.
    remaining: Vec<Option<HeaderValue>>,
}

impl Fields {
    pub(crate) fn new(policy: Policy, limit: u32) -> Self {
        Self::of_unit(policy, limit, UNIT.into())
    }

    fn of_unit(policy: Policy, limit: u32, unit: Cow<'static, str>) -> Self {
        let remaining = |used| remaining_value(policy.as_str(), limit - used);
        Self {
            quota: quota_value(policy.as_str(), limit, &unit),
            remaining: (0..=limit.min(CACHED)).map(remaining).collect(),
            policy,
            limit,
            unit,
        }
    }

    pub(crate) fn with_policy(&self, policy: Policy) -> Self {
        Self::of_unit(policy, self.limit, self.unit.clone())
    }

    pub(crate) fn with_unit(&self, unit: Cow<'static, str>) -> Self {
        Self::of_unit(self.policy.clone(), self.limit, unit)
    }

    /// Adds a level of a permit to the fields of an admitted response, beside other policies.
    pub(crate) fn append(&self, headers: &mut HeaderMap, level: Level<'_>) {
        let (policy, limit, remaining) = (level.policy(), level.limit(), level.remaining());
        let window = level.window();
        if limit != self.limit || *policy != self.policy || window.is_some() {
            self.append_policy(headers, policy.as_str(), limit, window);
            return add(
                headers,
                RATELIMIT,
                remaining_value(policy.as_str(), remaining),
            );
        }
        add(headers, RATELIMIT_POLICY, self.quota.clone());
        let used = limit.saturating_sub(remaining) as usize;
        let cached = self.remaining.get(used);
        let value =
            cached.map_or_else(|| remaining_value(policy.as_str(), remaining), Clone::clone);
        add(headers, RATELIMIT, value);
    }

    /// Adds a policy, without the number of units that remain.
    pub(crate) fn append_policy(
        &self,
        headers: &mut HeaderMap,
        policy: &str,
        limit: u32,
        window: Option<Duration>,
    ) {
        let quota = match window {
            None => quota_value(policy, limit, &self.unit),
            Some(window) => window_value(policy, limit, window),
        };
        add(headers, RATELIMIT_POLICY, quota);
    }

    /// Adds the policy of a refused request to the fields, beside those of other layers. `remaining` is the number of
    /// units that a new claim would find.
    ///
    /// `remaining` is `None` if the number is unknown, for example because the store failed. Then the response has no
    /// `RateLimit` field, because the draft requires the remaining units in it.
    pub(crate) fn append_refusal(
        &self,
        headers: &mut HeaderMap,
        (policy, limit, window): (&str, u32, Option<Duration>),
        remaining: Option<u32>,
        retry_after: u64,
    ) {
        self.append_policy(headers, policy, limit, window);
        if let Some(remaining) = remaining {
            let reset = reset_value(policy, remaining, retry_after);
            add(headers, RATELIMIT, reset);
        }
    }
}

fn quota_value(policy: &str, limit: u32, unit: &str) -> Option<HeaderValue> {
    let unit = utf8_percent_encode(unit, UNQUOTABLE);
    item(policy, format_args!("q={limit};qu=\"{unit}\""))
}

/// A budget has the draft's default unit, because only its user knows what it counts. A window of less than a second
/// counts as one.
fn window_value(policy: &str, limit: u32, window: Duration) -> Option<HeaderValue> {
    let seconds = window.as_millis().div_ceil(1_000);
    item(policy, format_args!("q={limit};w={seconds}"))
}

fn remaining_value(policy: &str, remaining: u32) -> Option<HeaderValue> {
    item(policy, format_args!("r={remaining}"))
}

/// `t` names the same moment as `Retry-After`, as the draft requires.
fn reset_value(policy: &str, remaining: u32, retry_after: u64) -> Option<HeaderValue> {
    item(policy, format_args!("r={remaining};t={retry_after}"))
}

/// An item of a field: the policy's name, and parameters of the draft: `q` quota, `qu` its unit, `w` window in seconds,
/// `r` remaining units, `t` seconds to the next attempt. Percent encoding leaves only printable ASCII, so the value is
/// always valid.
fn item(policy: &str, parameters: fmt::Arguments<'_>) -> Option<HeaderValue> {
    let policy = utf8_percent_encode(policy, UNQUOTABLE);
    format!("\"{policy}\";{parameters}").try_into().ok()
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.append(name, value);
    }
}
