//! Fifty contenders share five permits. Each holds one for a tenth of a second.

use std::time::{Duration, Instant};
use testing::{
    bench::{
        figures::median,
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
    resp::Raw,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const CONTENDERS: usize = 50;
const PERMITS: u32 = 5;
const WORK: Duration = Duration::from_millis(100);

/// The time between two starts. It is many round trips, so that contenders arrive in the order of their starts.
const APART: Duration = Duration::from_millis(4);

/// The number of processes that the contenders are spread over, each with a separate store.
const STORES: usize = 5;

/// The results of one round.
struct Round {
    /// Milliseconds from the first start to the last end.
    total: f64,
    /// The number of pairs that were granted in the opposite order of their arrival.
    inversions: f64,
    /// Commands that clients sent, per acquire and release.
    commands: f64,
}

pub(crate) async fn compare(server: &RedisServer) {
    let rounds = pick(3, 10);
    let progress = bar("order", rounds);
    let mut all = Vec::new();
    for number in 0..rounds {
        all.push(round(server, number).await);
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(&all);
}

fn report(all: &[Round]) {
    let title = "50 contenders from 5 stores, 4 ms apart, 5 permits, 100 ms each";
    let head = [
        "",
        "total ms",
        "÷ work, 1,000",
        "÷ ideal, 1,016",
        "inversions of 1,225",
        "commands per acquire",
    ];
    let mut table = Table::new(title, &head);
    let column = |figure: fn(&Round) -> f64| all.iter().map(figure).collect::<Vec<_>>();
    let columns = [
        column(|r| r.total),
        column(|r| r.inversions),
        column(|r| r.commands),
    ];
    let worst = |values: &Vec<f64>| values.iter().copied().fold(0.0, f64::max);
    table.row(row(
        "median",
        columns.each_ref().map(|column| median(column)),
    ));
    table.row(row("worst", columns.each_ref().map(worst)));
    println!("{table}");
}

fn row(name: &str, [total, inversions, commands]: [f64; 3]) -> [String; 6] {
    let relative_to = |ideal: Duration| format!("{:.3}", total / (ideal.as_secs_f64() * 1e3));
    let work = WORK * CONTENDERS as u32 / PERMITS;
    [
        name.to_owned(),
        figure(total),
        relative_to(work),
        // The lower bound of the total: the fifth permit is taken only when the fifth contender arrives, and then ten
        // contenders hold it in turn.
        relative_to(work + APART * (PERMITS - 1)),
        figure(inversions),
        figure(commands),
    ]
}

async fn round(server: &RedisServer, number: usize) -> Round {
    let mut stores = Vec::new();
    for _ in 0..STORES {
        let store = RedisSemaphore::connect(server.url()).await;
        stores.push(store.expect("the server is there"));
    }
    let mut raw = Raw::connect(server.port()).await;
    raw.reset_stats().await;
    let start = Instant::now();
    let mut contenders = JoinSet::new();
    for at in 0..CONTENDERS {
        let store = stores[at % STORES].clone();
        let key = format!("order-{number}");
        contenders.spawn(contend(store, key, at, start));
    }
    let seen = contenders.join_all().await;
    // The last releases are still in flight.
    sleep(WORK).await;
    let stats = raw.commandstats().await;
    let sent = ["evalsha", "eval", "subscribe"].map(|name| stats.get(name).copied().unwrap_or(0));
    let ends = seen.iter().map(|(.., end)| end.as_secs_f64() * 1e3);
    Round {
        total: ends.fold(0.0, f64::max),
        inversions: inversions(seen) as f64,
        commands: sent.iter().sum::<u64>() as f64 / CONTENDERS as f64,
    }
}

/// The contender, the token of its permit, and the time at which it was done.
type Seen = (usize, u64, Duration);

async fn contend(store: RedisSemaphore, key: String, at: usize, start: Instant) -> Seen {
    sleep(APART * at as u32).await;
    let claim = Claim::new(key)
        .with_limit(PERMITS)
        .with_wait(Duration::from_secs(10));
    let permit = store.acquire(claim).await.expect("it is granted");
    // Tokens grow from grant to grant, whichever process learns of its grant first.
    let token = permit.token().expect("it is granted");
    sleep(WORK).await;
    drop(permit);
    (at, token, start.elapsed())
}

/// The number of pairs in which the earlier contender was granted later.
fn inversions(mut seen: Vec<Seen>) -> usize {
    seen.sort_by_key(|(at, ..)| *at);
    let overtakers = |(at, (_, earlier, _)): (usize, &Seen)| {
        seen[at + 1..]
            .iter()
            .filter(|(_, later, _)| later < earlier)
            .count()
    };
    seen.iter().enumerate().map(overtakers).sum()
}
