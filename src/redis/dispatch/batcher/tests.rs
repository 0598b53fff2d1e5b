//! Over a transport that never answers.

use super::*;
use crate::{
    redis::{
        clock::{ServerClock, Times},
        dispatch::{Claim, Level, claim::Answer},
        error::Error,
        lease::Lease,
        outage::{Breakers, WhenUnavailable},
        protocol::{PermitId, Protocol},
        transport::{Terms, Transport},
    },
    semaphore::BoxFuture,
};
use futures_util::future::join_all;
use redis::{Cmd, Value};
use std::future::pending;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

const MS: Duration = Duration::from_millis(1);

struct Silent;

impl Transport for Silent {
    fn ready(&self, _: &str, _: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        None
    }

    fn send(&self, _: Vec<Cmd>, _: Terms) -> BoxFuture<Result<Vec<Result<Value, Error>>, Error>> {
        Box::pin(pending())
    }

    fn is_one_server(&self) -> bool {
        true
    }
}

fn batcher(times: Times) -> (Arc<Batcher>, Arc<Breakers>) {
    let transport: Arc<dyn Transport> = Arc::new(Silent);
    let clock = Arc::new(ServerClock::new(times));
    let breakers = Breakers::new(Arc::clone(&transport), times, WhenUnavailable::Refuse);
    let protocol = Protocol::new(
        transport,
        Arc::clone(&clock),
        "p".to_owned(),
        "process".into(),
        30,
        Arc::clone(&breakers),
        0,
    );
    let batcher = Batcher {
        attempts: Arc::new(Attempts::new(protocol, times, clock)),
        round_trip: Arc::default(),
    };
    (Arc::new(batcher), breakers)
}

/// A claim that can be answered for a minute.
fn claim(queue: &mpsc::UnboundedSender<Queued>) -> oneshot::Receiver<Answer> {
    let (answer, answered) = oneshot::channel();
    let lease = Arc::new(Lease::new("p{c:a}".into(), PermitId::new(1, 2_000, 1)));
    let position = None;
    let deadline = Instant::now() + MS * 60_000;
    let claim = Claim::one(Level { lease, position }, deadline);
    let sent = queue.send(Queued::new(claim, answer));
    assert!(sent.is_ok(), "the batcher runs");
    answered
}

fn is_timeout(answer: &Answer) -> bool {
    matches!(answer, Err(Error::Timeout(_)))
}

#[tokio::test]
async fn claims_that_wait_for_a_batch_are_refused_when_the_breaker_opens() {
    let (batcher, breakers) = batcher(Times::new(30 * MS, MS));
    let (queue, received) = mpsc::unbounded_channel();
    tokio::spawn(batcher.run(received));
    let mut answers: Vec<_> = (0..2_000).map(|_| claim(&queue)).collect();
    sleep(MS * 20).await;
    let waiting = answers.split_off(1_500);
    for _ in 0..3 {
        let failed = Error::Timeout(MS);
        breakers.failed(["p{c:a}".into()].into_iter(), &failed);
        sleep(MS * 2).await;
    }
    let waiting = timeout(MS * 20_000, join_all(waiting)).await;
    let waiting = waiting.expect("none waits any more").into_iter();
    let refused = waiting.filter(|answer| answer.as_ref().is_ok_and(is_timeout));
    assert_eq!(refused.count(), 500);
    assert!(answers[0].try_recv().is_err(), "what was sent is answered");
    let later = claim(&queue).await;
    assert!(later.as_ref().is_ok_and(is_timeout));
}
