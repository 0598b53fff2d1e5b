//! Clocks of a process that a test can set: the wall clock, and the boot-time clock, which also counts the time in
//! which the machine is suspended.

use crate::redis::RedisServer;
use std::{fs::File, os::unix::fs::FileExt, path::PathBuf, process::Command};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock.c");
const MISSING: &str = "this test needs a C compiler named `cc`: `apt-get install gcc libc6-dev`";

/// The clocks of a process that was started in its [`environment`](Self::environment).
#[derive(Debug)]
pub struct SteppedClock(TempDir);

impl SteppedClock {
    /// Compiles the preload library. The clocks are right at first.
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
        clock.suspend(0);
        clock
    }

    /// The environment variables with which a process follows these clocks.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("CLOCK_STEP_FILE", self.file().display().to_string()),
        ]
    }

    /// Starts a server that follows these clocks.
    pub fn server(&self) -> RedisServer {
        RedisServer::with_environment(&[], &self.environment())
    }

    /// Sets the wall clock ahead by this number of seconds, or back if it is negative.
    pub fn set(&self, seconds: i64) {
        self.write(&seconds.to_ne_bytes());
    }

    /// Sets both clocks ahead by this number of seconds, as after a suspension of the machine.
    pub fn suspend(&self, seconds: i64) {
        self.write(&[seconds.to_ne_bytes(); 2].concat());
    }

    /// Writes the file of steps: the wall clock's seconds, and then the boot-time clock's if they change too.
    fn write(&self, steps: &[u8]) {
        // Not truncated, because running processes have mapped the file.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.file())
            .expect("the folder is ours");
        file.write_all_at(steps, 0).expect("the file is ours");
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("step")
    }
}
