//! The web as the crawler sees it: one service per host, with a limit.

use crate::{BoxError, store::Store};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_semaphore::{AcquireError, GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer, Policy};

type Http = Client<HttpConnector, Empty<Bytes>>;
type Host = GlobalConcurrencyLimit<Http>;
type Get = Request<Empty<Bytes>>;

/// The number of attempts per page, and the time between two attempts. A store that fails for 30 s ends the crawl.
const TRIES: usize = 60;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The longest pause that a host may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Web {
    http: Http,
    store: Store,
    limit: u32,
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
}

impl Web {
    /// Allows `limit` requests in flight at each host, including their bodies.
    pub(crate) fn new(store: Store, limit: u32) -> Self {
        Self {
            http: Client::builder(TokioExecutor::new()).build_http(),
            store,
            limit,
            hosts: Arc::default(),
        }
    }

    /// Reads a page as soon as its host has a free permit.
    pub(crate) async fn page(&self, url: &str) -> Result<String, BoxError> {
        let uri: Uri = url.parse()?;
        for _ in 0..TRIES {
            let response = self.send(&uri).await?;
            // The layer refuses only if the store fails. The request was not sent then.
            let is_refused = response.extensions().get::<AcquireError>().is_some();
            if !is_refused && response.status() != StatusCode::TOO_MANY_REQUESTS {
                return text(response).await;
            }
            // After a 429 the layer has paused the host for all crawlers, so the next attempt also waits for its turn.
            sleep(BETWEEN_TRIES).await;
        }
        Err(format!("{url}: {TRIES} attempts have failed").into())
    }

    async fn send(&self, uri: &Uri) -> Result<<Host as Service<Get>>::Response, BoxError> {
        let host = uri.authority().ok_or("a link without a host")?;
        Ok(self.host(host.as_str()).oneshot(get(uri)?).await?)
    }

    /// The largest number of simultaneous requests at a host. This request bypasses the limit and is not counted.
    pub(crate) async fn most_seen(&self, host: &str) -> Result<usize, BoxError> {
        self.number(host, "most").await
    }

    /// The largest number of requests that a host has received during a pause.
    pub(crate) async fn most_early(&self, host: &str) -> Result<usize, BoxError> {
        self.number(host, "early").await
    }

    async fn number(&self, host: &str, path: &str) -> Result<usize, BoxError> {
        let uri = format!("http://{host}/{path}").parse()?;
        let number = text(self.http.request(get(&uri)?).await?).await?;
        Ok(number.parse()?)
    }

    /// All hosts that requests were sent to.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.keys().cloned().collect()
    }

    fn host(&self, name: &str) -> Host {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.entry(name.to_owned()).or_insert_with_key(|name| {
            let (key, store) = (name.clone(), self.store.clone());
            GlobalConcurrencyLimitLayer::new(self.limit, key, store)
                .with_cooldown(Policy::DEFAULT, LONGEST_PAUSE)
                .layer(self.http.clone())
        });
        host.clone()
    }
}

fn get(uri: &Uri) -> Result<Get, http::Error> {
    Request::get(uri).body(Empty::new())
}

/// The body, if the status is a success.
async fn text<B>(response: Response<B>) -> Result<String, BoxError>
where
    B: Body<Error: Into<BoxError>>,
{
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Err(format!("a page with status {}", head.status).into());
    }
    let body = body.collect().await.map_err(Into::into)?;
    Ok(String::from_utf8(body.to_bytes().into())?)
}
