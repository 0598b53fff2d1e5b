//! Processes whose wall clocks are bent by `libfaketime`, which leaves the monotonic clock alone.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use testing::{fleet::Process, redis::RedisServer};

/// How far each process's wall clock is off, in seconds.
pub(crate) const SKEWS: [i64; 5] = [-600, -60, 0, 90, 600];
pub(crate) const LEASE: Duration = Duration::from_millis(900);
const MISSING: &str = "this test needs libfaketime: `apt-get install faketime`";

/// A process with a clock of its own, and what it holds.
pub(crate) struct Skewed {
    pub(crate) process: Process,
    pub(crate) skew: i64,
    /// Since when it holds a permit.
    pub(crate) since: Option<Instant>,
    pub(crate) grants: u32,
    pub(crate) refusals: u32,
}

impl Skewed {
    /// A process whose wall clock is off by so many seconds, as it says itself.
    pub(crate) fn start(server: &RedisServer, skew: i64) -> Self {
        let monotonic = ["DONT_FAKE_MONOTONIC", "FAKETIME_DONT_FAKE_MONOTONIC"];
        let mut environment = vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME", format!("{skew:+}s")),
        ];
        environment.extend(monotonic.map(|name| (name, "1".to_owned())));
        let mut process = Process::with(&server.url(), LEASE, &environment);
        let really = process.clock() as i64 - now();
        assert!((really - skew).abs() <= 5, "{really} s instead of {skew} s");
        Self {
            process,
            skew,
            since: None,
            grants: 0,
            refusals: 0,
        }
    }

    /// A process for each skew.
    pub(crate) fn fleet(server: &RedisServer) -> Vec<Self> {
        SKEWS.map(|skew| Self::start(server, skew)).into()
    }

    /// Takes a permit of `a`, which is there only while fewer than `limit` are `held`.
    pub(crate) fn try_acquire(&mut self, limit: u32, held: usize) {
        let granted = self.process.acquire("p", "a", limit).is_some();
        assert_eq!(
            granted,
            held < limit as usize,
            "{:+} s beside {held}",
            self.skew
        );
        self.since = granted.then(Instant::now);
        self.grants += u32::from(granted);
        self.refusals += u32::from(!granted);
    }

    /// Checks that its permit is still held, and releases the permit after the given time.
    pub(crate) fn keep(&mut self, since: Instant, long: Duration) {
        let lost = self.process.is_lost("p");
        assert!(!lost, "that of {:+} s lost its live permit", self.skew);
        if since.elapsed() > long {
            let held = self.process.release("p");
            assert!(held, "that of {:+} s was not held any more", self.skew);
            self.since = None;
        }
    }
}

/// Our own clock, in seconds.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after 1970").as_secs() as i64
}

/// Where Debian, and distributions that follow it, have the library.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect(MISSING).flatten();
    let folders = folders.map(|folder| folder.path());
    let file = Path::new("faketime/libfaketimeMT.so.1");
    let mut libraries = folders
        .chain(["/usr/lib".into()])
        .map(|folder| folder.join(file));
    libraries.find(|library| library.exists()).expect(MISSING)
}
