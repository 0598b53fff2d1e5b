//! A server's process that ends with the test, even if the test is killed.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process, and the watcher that ends it if this process cannot.
#[derive(Debug)]
pub struct Daemon {
    pub process: Child,
    watcher: Child,
}

impl Daemon {
    /// Starts the process, and a watcher that would also remove `folder`.
    ///
    /// # Panics
    ///
    /// With `missing`, if the program is not installed.
    pub fn spawn(command: &mut Command, folder: &Path, missing: &str) -> Self {
        let process = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{missing}"),
            _ => panic!("{command:?} does not start: {error}"),
        });
        let watcher = watch(process.id(), folder);
        Self { process, watcher }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The watcher goes first. Once the process is reaped, its id may belong to another process.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell that cleans up when its standard input ends, which also happens when this process dies.
fn watch(pid: u32, folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "read _; kill -9 \"$0\"; rm -rf \"$1\""])
        .arg(pid.to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh is installed")
}
