//! Fifty requests of one account, 4 ms apart, with bodies that take 100 ms.

use futures_util::future::join_all;
use http::StatusCode;
use hyper::{Response, body::Incoming};
use std::{net::SocketAddr, time::Duration};
use testing::bench::connection::{Connection, read};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// The pause after a refusal.
const AGAIN: Duration = Duration::from_millis(10);

/// Prints how many contenders are admitted if each tries once, and the largest number of simultaneous bodies. Then, if
/// each tries until it is admitted, the total time in ms, the requests and the inversions.
pub(crate) async fn run(app: SocketAddr, path: &str) {
    let once = contenders(app, path, "once", 1).await;
    let again = contenders(app, path, "again", usize::MAX).await;
    let (_, most) = read(Connection::open(app).await.get("/most", "witness").await).await;
    let admitted = once.iter().filter(|one| one.order.is_some()).count();
    let total = again.iter().map(|one| one.end).max().unwrap_or_default();
    println!(
        "{admitted} {} {} {} {}",
        String::from_utf8_lossy(&most),
        total.as_millis(),
        again.iter().map(|one| one.requests).sum::<usize>(),
        inversions(&again),
    );
}

/// The outcome of one contender.
struct Contender {
    /// Its position in the order in which the app began to answer.
    order: Option<usize>,
    requests: usize,
    end: Duration,
}

/// The outcomes of all contenders, in the order of their starts.
async fn contenders(app: SocketAddr, path: &str, account: &str, tries: usize) -> Vec<Contender> {
    let connections = join_all((0..50).map(|_| Connection::open(app))).await;
    let start = Instant::now();
    let mut work = JoinSet::new();
    for (at, mut connection) in (0..).zip(connections) {
        let (path, account) = (path.to_owned(), account.to_owned());
        work.spawn(async move {
            sleep_until(start + Duration::from_millis(4) * at).await;
            let (order, requests) = retry(&mut connection, &path, &account, tries).await;
            let end = start.elapsed();
            (
                at,
                Contender {
                    order,
                    requests,
                    end,
                },
            )
        });
    }
    let mut contenders = work.join_all().await;
    contenders.sort_by_key(|(at, _)| *at);
    contenders.into_iter().map(|(_, contender)| contender).collect()
}

/// Sends requests until one is admitted, but at most `tries`, and reads the body to its end.
async fn retry(
    connection: &mut Connection,
    path: &str,
    account: &str,
    tries: usize,
) -> (Option<usize>, usize) {
    let mut requests = 0;
    loop {
        let response = connection.get(path, account).await;
        let order = order(&response);
        let (status, _) = read(response).await;
        requests += 1;
        match status {
            StatusCode::OK => return (order, requests),
            StatusCode::TOO_MANY_REQUESTS if requests < tries => sleep(AGAIN).await,
            StatusCode::TOO_MANY_REQUESTS => return (None, requests),
            other => panic!("neither admitted nor refused: {other}"),
        }
    }
}

fn order(response: &Response<Incoming>) -> Option<usize> {
    response
        .headers()
        .get("x-order")?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// The number of pairs in which the later contender was answered before the earlier one.
fn inversions(contenders: &[Contender]) -> usize {
    let overtakers = |(at, earlier): (usize, &Contender)| {
        let all = contenders[at + 1..].iter();
        all.filter(|later| later.order < earlier.order).count()
    };
    contenders.iter().enumerate().map(overtakers).sum()
}
