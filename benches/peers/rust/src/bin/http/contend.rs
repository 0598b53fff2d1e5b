//! Fifty requests of one account, 4 ms apart, for bodies of 100 ms.

use crate::connection::{Connection, read};
use futures_util::future::join_all;
use http::StatusCode;
use hyper::{Response, body::Incoming};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// How soon who was refused asks again.
const AGAIN: Duration = Duration::from_millis(10);

/// Prints how many of those that ask once are admitted; the most bodies at once; and of those that
/// ask until they are admitted, the total in ms, the requests and the inversions.
pub(crate) async fn run(app: SocketAddr, path: &str) {
    let once = crowd(app, path, "once", 1).await;
    let again = crowd(app, path, "again", usize::MAX).await;
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

/// What became of one contender.
struct Contender {
    /// Its place in the order in which the app began to answer.
    order: Option<usize>,
    requests: usize,
    end: Duration,
}

/// All contenders, in the order in which they came.
async fn crowd(app: SocketAddr, path: &str, account: &str, tries: usize) -> Vec<Contender> {
    let connections = join_all((0..50).map(|_| Connection::open(app))).await;
    let start = Instant::now();
    let mut work = JoinSet::new();
    for (at, mut connection) in (0..).zip(connections) {
        let (path, account) = (path.to_owned(), account.to_owned());
        work.spawn(async move {
            sleep_until(start + Duration::from_millis(4) * at).await;
            let (order, requests) = ask(&mut connection, &path, &account, tries).await;
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
    let mut crowd = work.join_all().await;
    crowd.sort_by_key(|(at, _)| *at);
    crowd.into_iter().map(|(_, contender)| contender).collect()
}

/// Asks until admitted, at most so often, and reads to the end.
async fn ask(
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

/// Pairs of which the later was answered before the earlier.
fn inversions(crowd: &[Contender]) -> usize {
    let overtakers = |(at, one): (usize, &Contender)| {
        let later = crowd[at + 1..].iter();
        later.filter(|other| other.order < one.order).count()
    };
    crowd.iter().enumerate().map(overtakers).sum()
}
