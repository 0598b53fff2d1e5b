//! The accounts at upstreams.

use crate::{
    request::{ApiRequest, Completion},
    settings::Settings,
    store::Store,
};
use axum::{
    body::Bytes,
    http::{
        Request, Response, StatusCode, Uri,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tower_semaphore::{AcquireError, Claim, Claims, Permit, Policy, Semaphore};

/// Requests in flight at an account.
const UPSTREAM: Policy = Policy::from_static("upstream");
/// Tokens per minute of an account.
pub(crate) const UPSTREAM_TOKENS: Policy = Policy::from_static("upstream-tokens");

/// The limit of [`UPSTREAM_TOKENS`], and the quota of an account at the built-in upstream.
pub(crate) const QUOTA: u32 = 1_000_000;

/// The shortest pause after a 429, also if its `Retry-After` is missing or is no number of seconds. `COOLDOWN_MS`, the
/// longest pause, takes precedence if it is shorter.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// All accounts. A request first acquires the limits of its tenant, and then one account. So a request that waits for
/// its tenant's tokens holds no account. While it waits for an account, its tenant's tokens stay reserved.
pub(crate) struct Accounts {
    store: Store,
    http: Client<HttpConnector, Full<Bytes>>,
    accounts: Vec<Account>,
    /// The number of calls of `acquire`. Consecutive calls begin with consecutive accounts.
    calls: AtomicUsize,
    limit: u32,
    minute: Duration,
    longest_pause: Duration,
}

pub(crate) struct Account {
    pub(crate) name: String,
    url: Uri,
}

/// The response of an upstream, with its account and the account's permit.
pub(crate) struct Answer<'a> {
    pub(crate) account: &'a Account,
    pub(crate) permit: Permit,
    pub(crate) response: Response<Incoming>,
}

/// An error of [`Accounts::send`].
pub(crate) enum SendError {
    /// No account was acquired, or the store did not pause an account.
    Acquire(AcquireError),
    /// The upstream was not reached, or has sent no response.
    Http(legacy::Error),
}

impl Accounts {
    /// The accounts of the settings. This process, which listens at `address`, simulates the upstream of each account
    /// without a URL.
    pub(crate) fn new(settings: &Settings, address: SocketAddr, store: Store) -> Self {
        let account = |(name, url): (&String, &Option<Uri>)| {
            let fake = || format!("http://{address}/fake/{name}/v1/completions");
            let url = url.clone().map_or_else(|| fake().parse(), Ok);
            Account {
                name: name.clone(),
                url: url.expect("a name is valid in a path"),
            }
        };
        Self {
            store,
            http: Client::builder(TokioExecutor::new()).build_http(),
            accounts: settings.upstreams.iter().map(account).collect(),
            calls: AtomicUsize::new(0),
            limit: settings.upstream_limit,
            minute: settings.minute,
            longest_pause: settings.cooldown,
        }
    }

    /// Sends a request to the first account that has room. A 429 pauses the account for all gateways that share the
    /// store, and then the request acquires an account again.
    pub(crate) async fn send(&self, request: &ApiRequest) -> Result<Answer<'_>, SendError> {
        loop {
            let (account, permit) = self.acquire(request).await.map_err(SendError::Acquire)?;
            // Nothing is used yet. So if the request fails below, the permit's drop frees the whole estimate.
            permit.settle(UPSTREAM_TOKENS, 0);
            let post = build_request(account, &request.completion);
            let response = self.http.request(post).await;
            let response = response.map_err(SendError::Http)?;
            let Some(pause) = self.pause_after(&response) else {
                return Ok(Answer {
                    account,
                    permit,
                    response,
                });
            };
            // The permit is held until the pause is set, so that no waiter is granted before.
            let paused = permit.pause(UPSTREAM, pause, "429 from the upstream").await;
            paused.map_err(SendError::Acquire)?;
        }
    }

    /// Returns a permit of an account that has room, or of the first account that gets room while the request waits.
    async fn acquire(&self, request: &ApiRequest) -> Result<(&Account, Permit), AcquireError> {
        let first = self.calls.fetch_add(1, Relaxed) % self.accounts.len();
        let (last, rest) = self.accounts.split_at(first);
        for account in rest.iter().chain(last) {
            // Does not wait.
            let claims = self.claims(account, request, Instant::now());
            match self.store.acquire_all(claims).await {
                Ok(permit) => return Ok((account, permit)),
                Err(error) if error.is_refusal() => {}
                // An operator has closed this account.
                Err(AcquireError::KeyClosed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let wait = async |account| {
            let claims = self.claims(account, request, request.deadline);
            (account, self.store.acquire_all(claims).await)
        };
        let mut waits: FuturesUnordered<_> = self.accounts.iter().map(wait).collect();
        let mut errors = Vec::new();
        while let Some((account, outcome)) = waits.next().await {
            match outcome {
                Ok(permit) => return Ok((account, permit)),
                Err(error) => errors.push(error),
            }
        }
        let soonest = errors
            .into_iter()
            .min_by_key(|error| error.retry_after().unwrap_or(Duration::MAX));
        Err(soonest.expect("`UPSTREAMS` names an account"))
    }

    fn claims(&self, account: &Account, request: &ApiRequest, deadline: Instant) -> Claims {
        let claim = |policy, limit| {
            Claim::new(&*account.name)
                .with_policy(policy)
                .with_limit(limit)
                .with_flow(&*request.key)
                .with_wait_until(deadline)
        };
        let estimate = request.estimate.min(QUOTA);
        let tokens = claim(UPSTREAM_TOKENS, QUOTA).with_window(self.minute);
        [claim(UPSTREAM, self.limit), tokens.with_estimate(estimate)].into()
    }

    /// Returns the time for which a 429 pauses its account. `None` for other responses.
    fn pause_after(&self, response: &Response<Incoming>) -> Option<Duration> {
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        let value = response.headers().get(RETRY_AFTER);
        let seconds = value.and_then(|value| value.to_str().ok()?.parse().ok());
        let pause = seconds.map_or(SHORTEST_PAUSE, Duration::from_secs);
        Some(pause.max(SHORTEST_PAUSE).min(self.longest_pause))
    }
}

fn build_request(account: &Account, completion: &Completion) -> Request<Full<Bytes>> {
    let Completion {
        model,
        prompt,
        max_tokens,
    } = completion;
    let body = json!({
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    Request::post(&account.url)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()))
        .expect("a valid request")
}
