//! Lock holders that are killed, or stopped by SIGSTOP for longer than their lease.
//!
//! Promises: P1, P5, P8.

use super::{
    BOUND,
    overlaps::{holder, judge},
};
use std::time::Duration;
use tempfile::TempDir;
use testing::{
    fleet::{Process, fenced::FencedFile, witness::Witness},
    redis::RedisServer,
    wait::eventually,
};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_millis(1_200);

/// Processes that take the lock repeatedly, and the log that they write.
struct Fixture {
    server: RedisServer,
    processes: Vec<Process>,
    witness: Witness,
    _folder: TempDir,
}

impl Fixture {
    fn new(processes: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let mut fixture = Self {
            server: RedisServer::start(),
            processes: Vec::new(),
            witness: Witness::at(folder.path().join("log")),
            _folder: folder,
        };
        for _ in 0..processes {
            fixture.start_process();
        }
        fixture
    }

    fn start_process(&mut self) {
        let mut process = Process::start(&self.server.url(), LEASE);
        process.lock_repeatedly("a", &self.witness);
        self.processes.push(process);
    }

    /// Waits until a process holds the lock, if only for a moment. Returns its index.
    async fn wait_for_holder(&self) -> usize {
        let mut found = None;
        eventually("a process holds the lock", BOUND, async || {
            let holder = holder(&self.witness.read());
            found = self.processes.iter().position(|p| Some(p.id()) == holder);
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Waits until the lock has been granted `count` more times.
    async fn until_granted(&self, count: usize) {
        let before = judge(&self.witness.read()).grants;
        eventually("the lock is granted again", BOUND, async || {
            judge(&self.witness.read()).grants >= before + count
        })
        .await;
    }

    /// Kills the holder and starts a new process to replace it.
    async fn replace_holder(&mut self) {
        let mut victim = self.processes.swap_remove(self.wait_for_holder().await);
        victim.kill();
        self.witness.write("killed", victim.id(), 0);
        self.start_process();
    }

    /// Stops a process for longer than a lease, and until other processes have held the lock.
    async fn stop(&self, index: usize) {
        self.processes[index].stop();
        sleep(LEASE * 5 / 4).await;
        self.until_granted(3).await;
        self.processes[index].cont();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_live_holders_although_processes_are_killed_and_stopped() {
    let mut fixture = Fixture::new(3);
    for _ in 0..3 {
        fixture.until_granted(5).await;
        fixture.replace_holder().await;
        fixture.until_granted(5).await;
        fixture.stop(fixture.wait_for_holder().await).await;
        fixture.until_granted(5).await;
        let waiter = (fixture.wait_for_holder().await + 1) % 3;
        fixture.stop(waiter).await;
    }
    fixture.until_granted(5).await;
    let findings = judge(&fixture.witness.read());
    assert!(findings.overlaps.is_empty(), "{findings:?}");
    assert!(findings.backwards.is_empty(), "{findings:?}");
    // Only a stopped process may be excused, and only for the grant that the stop interrupted: twice in each round.
    assert!(findings.excused.len() <= 6, "{findings:?}");
    // The waits above have counted more grants.
    assert!(findings.grants >= 50, "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_late_write_of_a_stopped_holder_is_refused_by_a_file_that_checks_tokens() {
    let server = RedisServer::start();
    let folder = TempDir::new().expect("a temporary folder can be made");
    let path = folder.path().join("fenced");
    let mut sleeper = Process::start(&server.url(), LEASE);
    let mut successor = Process::start(&server.url(), LEASE);

    sleeper.lock("sleeper", "a", BOUND).expect("it is free");
    assert!(sleeper.write("sleeper", &path));
    sleeper.stop();
    successor.lock("successor", "a", BOUND).expect("it expires");
    assert!(successor.write("successor", &path));
    sleeper.cont();

    assert!(!sleeper.write("sleeper", &path), "a late write");
    assert!(successor.write("successor", &path));
    let written = FencedFile::at(&path).writers();
    assert_eq!(written, ["sleeper", "successor", "successor"]);
    assert!(!sleeper.unlock("sleeper"));
    assert!(successor.unlock("successor"));
}
