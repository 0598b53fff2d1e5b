//! A store that records its refusals, and requests that carry their claims and the time for which they run.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use std::{
    convert::Infallible,
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::sleep;
use tower::{Service, ServiceExt};
use tower_semaphore::{Acquire, AcquireError, Claim, Claims, Permit, Semaphore};

/// A store that records each refusal, in the order of the answers. If the store within answers at once, so does this
/// one.
#[derive(Clone)]
pub(crate) struct Noted {
    store: Arc<dyn Semaphore>,
    refusals: Arc<Mutex<Vec<AcquireError>>>,
}

impl Noted {
    pub(crate) fn new(store: impl Semaphore) -> Self {
        Self {
            store: Arc::new(store),
            refusals: Arc::default(),
        }
    }

    pub(crate) fn refusals(&self) -> Vec<AcquireError> {
        self.refusals.lock().expect("no panic").clone()
    }

    pub(crate) fn refused(&self) -> usize {
        self.refusals.lock().expect("no panic").len()
    }

    fn note(&self, answer: &Result<Permit, AcquireError>) {
        if let Err(error) = answer {
            let mut refusals = self.refusals.lock().expect("no panic");
            refusals.push(error.clone());
        }
    }
}

impl Semaphore for Noted {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let mut acquire = self.store.acquire_all(claims);
        let noted = self.clone();
        match (&mut acquire).now_or_never() {
            Some(answer) => {
                noted.note(&answer);
                Acquire::ready(answer)
            }
            None => Acquire::pending(async move {
                let answer = acquire.await;
                noted.note(&answer);
                answer
            }),
        }
    }
}

/// The claims of a request, and the time for which it runs.
#[derive(Debug, Clone)]
struct Job {
    claims: Vec<Claim>,
    time: Duration,
}

/// A request that makes these claims and runs for this time.
pub(crate) fn job(claims: impl Into<Vec<Claim>>, millis: u64) -> Request<String> {
    let mut request = Request::new(String::new());
    let job = Job {
        claims: claims.into(),
        time: Duration::from_millis(millis),
    };
    request.extensions_mut().insert(job);
    request
}

/// A claim for one unit of Ann's.
pub(crate) fn ann() -> Claim {
    Claim::new("ann")
}

pub(crate) fn claims(parts: &Parts) -> Vec<Claim> {
    let job = parts.extensions.get::<Job>();
    job.map(|job| job.claims.clone()).expect("a job")
}

pub(crate) async fn run(request: Request<String>) -> Result<Response<String>, Infallible> {
    let job = request.extensions().get::<Job>().cloned();
    sleep(job.expect("a job").time).await;
    done("done")
}

/// A response with this text.
pub(crate) fn done(text: &str) -> Result<Response<String>, Infallible> {
    Ok(Response::new(text.to_owned()))
}

/// Reads a response to its end.
pub(crate) trait Text {
    async fn text(self) -> String;
}

impl<B: Body<Data = Bytes, Error: Debug>> Text for Response<B> {
    async fn text(self) -> String {
        let body = self.into_body().collect().await;
        let bytes = body.expect("the body is whole").to_bytes();
        String::from_utf8(bytes.into()).expect("text")
    }
}

pub(crate) async fn send<S, B>(service: &S, request: Request<String>) -> Response<B>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let Ok(answer) = service.clone().oneshot(request).await;
    answer
}

/// The number of Ann's held units, as the refusal of a claim for all units reports it. 0 if the claim is granted.
pub(crate) async fn held(store: &impl Semaphore, limit: u32) -> u32 {
    let claim = ann().with_limit(limit).with_weight(limit);
    match store.acquire(claim).await {
        Ok(_) => 0,
        Err(AcquireError::Full { held, .. }) => held,
        Err(error) => panic!("{error}"),
    }
}
