//! The settings, from the environment.

use axum::http::{Uri, uri::PathAndQuery};
use std::{
    collections::BTreeMap, env, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration,
};

/// The settings. Each is an environment variable.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `PORT`: the port to listen on, 3000 by default. 0 means any free port.
    pub(crate) port: u16,
    /// `REDIS_URL`: the Redis in which gateways share the limits. If unset, the limits are in memory.
    pub(crate) redis_url: Option<String>,
    /// `KEY_LIMIT`: the requests that an API key may have in flight, 5 by default.
    pub(crate) key_limit: u32,
    /// `KEY_TPM`: the tokens per minute of an API key, 10000 by default.
    pub(crate) key_tpm: u32,
    /// `MODEL_TPM`: the tokens per minute of a model, 60000 by default. API keys share them fairly.
    pub(crate) model_tpm: u32,
    /// `MINUTE_MS`: the length of the minute of all budgets, 60000 by default. With a shorter one a demonstration shows
    /// in seconds what happens in minutes.
    pub(crate) minute: Duration,
    /// `UPSTREAMS`: the accounts, as `NAME,NAME=http://HOST/PATH`, `fake-1,fake-2` by default. The fake upstream serves
    /// an account without a URL. A URL without path and query has the path `/v1/completions`.
    pub(crate) upstreams: BTreeMap<String, Option<Uri>>,
    /// `UPSTREAM_LIMIT`: the requests that may be in flight at an account, 8 by default.
    pub(crate) upstream_limit: u32,
    /// `WORD_MS`: the time that the fake upstream takes for a word, 20 by default.
    pub(crate) word_time: Duration,
    /// `ESTIMATE`: the tokens that a request reserves, `mean` (the default) or `max`.
    pub(crate) estimate_mode: EstimateMode,
    /// `WAIT_MS`: the longest wait of a request, 30000 by default.
    pub(crate) wait: Duration,
    /// `COOLDOWN_MS`: the longest pause that a `Retry-After` of an upstream may cause, 300000 by default.
    pub(crate) cooldown: Duration,
}

/// The tokens that a request reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EstimateMode {
    /// 1.5 × the running mean of the model's answers in this process, or `max_tokens` until the model has ten answers.
    /// Never more than `max_tokens`, `KEY_TPM` or `MODEL_TPM`.
    RunningMean,
    /// The request's `max_tokens`.
    MaxTokens,
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl Settings {
    /// Reads the environment. An error begins with the name of the setting.
    pub(crate) fn from_env() -> Result<Self, String> {
        Ok(Self {
            port: read_number("PORT", 3_000, 0..=u16::MAX)?,
            redis_url: read_text("REDIS_URL")?,
            key_limit: read_number("KEY_LIMIT", 5, 1..=u32::MAX)?,
            key_tpm: read_number("KEY_TPM", 10_000, 1..=u32::MAX)?,
            model_tpm: read_number("MODEL_TPM", 60_000, 1..=u32::MAX)?,
            minute: Duration::from_millis(read_number("MINUTE_MS", 60_000, 1..=DAY_MS)?),
            upstreams: read_upstreams()?,
            upstream_limit: read_number("UPSTREAM_LIMIT", 8, 1..=u32::MAX)?,
            word_time: Duration::from_millis(read_number("WORD_MS", 20, 0..=DAY_MS)?),
            estimate_mode: read_estimate_mode()?,
            wait: Duration::from_millis(read_number("WAIT_MS", 30_000, 0..=DAY_MS)?),
            cooldown: Duration::from_millis(read_number("COOLDOWN_MS", 300_000, 1..=DAY_MS)?),
        })
    }
}

/// Returns the text of a variable, or `None` if it is not set.
fn read_text(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Returns the number in a variable, which must be within `range`. Returns the default if the variable is not set.
fn read_number<T>(name: &str, default: T, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let Some(text) = read_text(name)? else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (min, max) = range.into_inner();
        format!("{name}: {text:?} is not a whole number from {min} to {max}")
    })
}

fn read_estimate_mode() -> Result<EstimateMode, String> {
    match read_text("ESTIMATE")?.as_deref() {
        None | Some("mean") => Ok(EstimateMode::RunningMean),
        Some("max") => Ok(EstimateMode::MaxTokens),
        Some(other) => Err(format!("ESTIMATE: {other:?} is not `mean` or `max`")),
    }
}

fn read_upstreams() -> Result<BTreeMap<String, Option<Uri>>, String> {
    let text = read_text("UPSTREAMS")?.unwrap_or_else(|| "fake-1,fake-2".to_owned());
    let mut upstreams = BTreeMap::new();
    for entry in text.split(',').map(str::trim) {
        let (name, url) = match entry.split_once('=') {
            Some((name, url)) => (name, Some(completions_url(url)?)),
            None => (entry, None),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_allowed) {
            return Err(format!(
                "UPSTREAMS: {name:?} is not a name of letters, digits, `-`, `_` and `.`"
            ));
        }
        if upstreams.insert(name.to_owned(), url).is_some() {
            return Err(format!("UPSTREAMS: {name:?} is listed twice"));
        }
    }
    Ok(upstreams)
}

/// Returns the URL to which completions are posted.
fn completions_url(url: &str) -> Result<Uri, String> {
    let uri = url
        .parse::<Uri>()
        .ok()
        .filter(|uri| uri.scheme_str() == Some("http"))
        .ok_or_else(|| format!("UPSTREAMS: {url:?} is not a URL with `http://`"))?;
    let mut parts = uri.into_parts();
    let path = parts
        .path_and_query
        .take()
        .filter(|path| path != "/")
        .unwrap_or_else(|| PathAndQuery::from_static("/v1/completions"));
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| format!("UPSTREAMS: {url:?}: {error}"))
}
