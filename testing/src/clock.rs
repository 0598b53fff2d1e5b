//! A wall clock for a server's process that a test can set back and forth.

use crate::redis::RedisServer;
use std::{fs::File, io::Write, path::PathBuf, process::Command};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock.c");
const MISSING: &str = "this test needs a C compiler named `cc`: `apt-get install gcc libc6-dev`";

/// The clock of a process that was started in its [`environment`](Self::environment).
#[derive(Debug)]
pub struct SteppedClock(TempDir);

impl SteppedClock {
    /// Compiles the preload. The clock is right at first.
    ///
    /// # Panics
    ///
    /// Without a C compiler.
    pub fn compile() -> Self {
        let clock = Self(TempDir::new().expect("a temporary folder can be made"));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(clock.library())
            .arg(SOURCE)
            .status()
            .expect(MISSING);
        assert!(compiled.success(), "{MISSING}");
        clock.set(0);
        clock
    }

    /// What a process needs in its environment to follow this clock.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("CLOCK_STEP_FILE", self.file().display().to_string()),
        ]
    }

    /// Starts a server that follows this clock.
    pub fn server(&self) -> RedisServer {
        RedisServer::with_environment(&[], &self.environment())
    }

    /// From now on the clock is off by so many seconds.
    pub fn set(&self, seconds: i64) {
        // Not truncated: the file is mapped by processes that read it.
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.file())
            .expect("the folder is ours");
        file.write_all(&seconds.to_ne_bytes())
            .expect("the file is ours");
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("step")
    }
}
