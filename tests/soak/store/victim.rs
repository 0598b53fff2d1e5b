//! Processes with a load of their own, killed in the middle of it.

use super::{
    load::Load,
    oracle::Oracle,
    plan::{Fault, Plan},
    run::connect_to,
};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};
use testing::{child::child, rng::Rng};
use tokio::{
    runtime::Runtime,
    task::{JoinHandle, spawn_blocking},
};

const URL: &str = "SOAK_VICTIM_URL";
const SEED: &str = "SOAK_SEED";
const READY: &str = "under load";

/// The victim ends by itself after this, if its parent is gone.
const LONGEST: Duration = Duration::from_secs(20);

/// Starts a victim and kills it, again and again, if that is planned.
pub(crate) fn kills(plan: Plan, url: String, end: Instant) -> JoinHandle<()> {
    let mut rng = Rng::new(plan.seed ^ 1);
    spawn_blocking(move || {
        while plan.fault == Fault::Kill && Instant::now() < end {
            let mut victim = Victim::start(&url, plan.seed);
            sleep(rng.millis(100..800));
            victim.kill();
        }
    })
}

/// A process under load. Killed when it is dropped.
struct Victim(Child);

impl Victim {
    /// Starts one, and returns when its load has begun.
    fn start(url: &str, seed: u64) -> Self {
        let mut child = child(module_path!(), "a_process_that_will_be_killed")
            .env(URL, url)
            .env(SEED, format!("{seed:x}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim starts");
        let output = child.stdout.take().expect("it is piped");
        let victim = Self(child);
        let mut lines = BufReader::new(output).lines();
        let ready = lines.any(|line| line.expect("it writes text").ends_with(READY));
        assert!(ready, "the victim has gone by itself");
        victim
    }

    fn kill(&mut self) {
        // An error means that the victim has ended already.
        let _ = self.0.kill();
        self.0.wait().expect("it is our child");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a victim: the same load as the others have.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_that_will_be_killed() {
    let Ok(url) = env::var(URL) else {
        return;
    };
    let plan = Plan::new(Fault::Kill, 1);
    let load = Arc::new(Load {
        oracle: Arc::new(Oracle::new(true)),
        plan,
        end: Instant::now() + LONGEST,
    });
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let store = connect_to(plan, &url).await;
        println!("{READY}");
        // Other random choices than those of the parent.
        load.run(&[store], Rng::new(!plan.seed)).await;
    });
}
