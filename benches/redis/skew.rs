//! Five clients whose clocks differ, and one permit: how often does it have more than one holder?

use crate::rival::{Held, NAMES, OURS, Rival};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{
    bench::{
        figures::Dice,
        run::{bar, pick},
        table::Table,
    },
    book::Clock,
};
use tokio::{task::JoinSet, time::sleep};

/// The number of seconds by which each client's clock is ahead.
const AHEAD: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];

/// The harness's own observations, independent of the semaphores.
#[derive(Default)]
struct Witness {
    /// The number of clients that hold the permit now.
    inside: AtomicU64,
    grants: AtomicU64,
    /// The number of grants while another client held the permit.
    over: AtomicU64,
}

impl Witness {
    fn enter(&self) {
        self.grants.fetch_add(1, SeqCst);
        if self.inside.fetch_add(1, SeqCst) > 0 {
            self.over.fetch_add(1, SeqCst);
        }
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }
}

/// Measures how often each semaphore admits a second holder.
pub(crate) async fn compare(url: &str) {
    let head = ["variant", "grants", "while another held it", "in 1,000"];
    let title = "Five clients, clocks up to 2 s apart, one permit held for 0 to 4 ms";
    let mut table = Table::new(title, &head);
    // The semaphores: all names except the empty script and the floor.
    let rivals = &NAMES[OURS..];
    let progress = bar("clocks", rivals.len());
    for name in rivals {
        let witness = contend(name, url).await;
        let (grants, over) = (witness.grants.load(SeqCst), witness.over.load(SeqCst));
        let share = over as f64 * 1e3 / grants.max(1) as f64;
        table.row([
            (*name).to_owned(),
            grants.to_string(),
            over.to_string(),
            format!("{share:.1}"),
        ]);
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{table}");
}

async fn contend(name: &str, url: &str) -> Arc<Witness> {
    let witness = Arc::new(Witness::default());
    let end = Instant::now() + Duration::from_secs(pick(2, 10));
    let mut clients = JoinSet::new();
    for (number, ahead) in AHEAD.into_iter().enumerate() {
        let rival = Rival::connect(name, url, Clock { ahead }).await;
        let dice = Dice::new(number as u64 + 1);
        clients.spawn(client(rival, dice, Arc::clone(&witness), end));
    }
    clients.join_all().await;
    witness
}

async fn client(rival: Rival, mut dice: Dice, witness: Arc<Witness>, end: Instant) {
    while Instant::now() < end {
        match rival.acquire("skew", 1).await {
            Some(held) => {
                witness.enter();
                sleep(Duration::from_millis(dice.below(5))).await;
                witness.leave();
                give_back(&rival, held).await;
            }
            None => sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn give_back(rival: &Rival, held: Held) {
    match held {
        Held::Permit(permit) => drop(permit.release().await),
        held => rival.release("skew", held).await,
    }
}
