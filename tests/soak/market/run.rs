//! The run: load with faults, then load alone, then no load. Then the results are judged.

use super::{
    client::Processes,
    faults,
    figures::Figures,
    fixture::Fixture,
    judge::Books,
    plan::{LEASE, Plan},
    residue, streams,
    traders::{self, Answers, Shared},
    witness::Witness,
};
use futures_util::future::join_all;
use std::sync::Arc;
use testing::rng::Rng;
use tokio::{task::JoinHandle, time::sleep};

const SELLERS: usize = 3;
const BUYERS: usize = 6;
const CLIENTS: usize = 32;

/// Events that must happen in each run, because otherwise nothing was tested.
const HAPPENED: [&str; 5] = [
    "units of concurrency granted from a queue",
    "units of fleet granted from a queue",
    "units of lock granted at once",
    "units released",
    "clients: read to the end",
];

pub(crate) async fn soak() {
    let plan = Plan::from_env();
    println!("SOAK_SEED={:#x}, for {:?}", plan.seed, plan.duration);
    let (fixture, figures) = (
        Arc::new(Fixture::start().await),
        Arc::new(Figures::default()),
    );
    let watchers = watch(&fixture, &figures);
    let answers = play(plan, &fixture).await;
    residue::judge(&fixture, &figures).await;
    figures.judge(&fixture);
    watchers.iter().for_each(JoinHandle::abort);
    residue::close(&fixture).await;
    let books = Books::read(&*fixture.server.lock().await).await;
    print(&fixture, &books);
    for what in HAPPENED {
        fixture.report.needs(what);
    }
    fixture.report.assert_nothing_is_wrong();
    assert!(books.trades() > 0, "no trade was made");
    books.assert_conserved();
    books.assert_funds_match_trades();
    books.assert_matches_answers(&answers);
}

/// Starts all observers, which run until they are aborted.
fn watch(fixture: &Arc<Fixture>, figures: &Arc<Figures>) -> [JoinHandle<()>; 3] {
    let for_clock = Arc::clone(fixture);
    let (for_figures, figures) = (Arc::clone(fixture), Arc::clone(figures));
    let for_witness = Arc::clone(fixture);
    [
        tokio::spawn(async move { for_clock.watch().await }),
        tokio::spawn(async move { figures.watch(&for_figures).await }),
        tokio::spawn(async move { Witness::new(&for_witness).watch().await }),
    ]
}

/// Runs load and faults. Returns the answers that traders got.
async fn play(plan: Plan, fixture: &Arc<Fixture>) -> Vec<Answers> {
    let mut rng = Rng::new(plan.seed);
    let shared = Shared::new(Arc::new(Processes::new(Arc::clone(fixture))));
    let sellers = (0..SELLERS).map(|n| tokio::spawn(traders::sell(shared.clone(), n)));
    let buyers = (0..BUYERS).map(|n| tokio::spawn(traders::buy(shared.clone(), n)));
    let traders: Vec<_> = sellers.chain(buyers).collect();
    let clients = (0..CLIENTS).map(|_| {
        let (fixture, rng) = (Arc::clone(fixture), rng.another());
        tokio::spawn(streams::roam(fixture, rng))
    });
    let clients: Vec<_> = clients.collect();
    fail(plan, fixture, &mut rng).await;
    // The load recovers from the last fault.
    sleep(4 * LEASE).await;
    fixture.quiet.cancel();
    shared.stop.cancel();
    for client in join_all(clients).await {
        client.expect("no client panics");
    }
    let answers = join_all(traders).await;
    let answers = answers.into_iter();
    answers
        .map(|answers| answers.expect("no trader panics"))
        .collect()
}

/// Injects faults for the planned time.
async fn fail(plan: Plan, fixture: &Fixture, rng: &mut Rng) {
    let (redis, processes) = (rng.another(), rng.another());
    let end = async {
        sleep(plan.duration).await;
        fixture.calm.cancel();
    };
    tokio::join!(
        end,
        faults::inject_redis_faults(fixture, redis),
        faults::inject_process_faults(fixture, processes)
    );
}

fn print(fixture: &Fixture, books: &Books) {
    fixture.report.print();
    println!(
        "{:>9} responses at most were in flight",
        fixture.in_flight.most()
    );
    println!("{:>9} trades", books.trades());
    println!("{:>9} accounts", books.accounts());
}
