//! The browser's driver, a separate process.

use std::{
    io::{BufRead, BufReader, ErrorKind},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

const MISSING: &str = "these tests need `chromedriver` on the PATH: \
    `apt-get install chromium chromium-driver`";

/// A driver and the browsers that it starts, which form one process group. The group ends when this value is dropped,
/// and also when this process is killed.
pub(crate) struct Driver {
    driver: Child,
    watcher: Child,
    port: u16,
}

impl Driver {
    /// Starts a driver on a free port. `profile` is removed if this process is killed.
    ///
    /// # Panics
    ///
    /// Panics if chromedriver is not installed, or if it fails to report its port five times in a row.
    pub(crate) fn start(profile: &Path) -> Self {
        // chromedriver picks a port that is free for IPv4 and then uses the same port for IPv6. If another process has
        // that port, it exits.
        let started = (0..5).find_map(|_| Self::try_start(profile));
        started.expect("chromedriver reports its port")
    }

    fn try_start(profile: &Path) -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{MISSING}"),
            _ => panic!("chromedriver does not start: {error}"),
        });
        let Some(port) = port(&mut driver) else {
            driver.wait().expect("it ends: its output has ended");
            return None;
        };
        let watcher = watch(driver.id(), profile);
        Some(Self {
            driver,
            watcher,
            port,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Without its input the watcher kills the group.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts a shell that kills the group once the shell's standard input closes, which happens also if this process is
/// killed.
fn watch(group: u32, profile: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "read _; kill -s KILL -- \"-$0\"; rm -rf \"$1\""])
        .arg(group.to_string())
        .arg(profile)
        // Its own group, because this process's group may be killed as a whole.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh is installed")
}

/// The port that the driver reports. `None` if it exits without reporting one.
fn port(driver: &mut Child) -> Option<u16> {
    let stdout = driver.stdout.take().expect("stdout is piped");
    let is_report = |line: &String| line.contains("started successfully on port");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let line = lines.find(is_report)?;
    let port = line.trim_end_matches('.').rsplit(' ').next();
    Some(port.and_then(|port| port.parse().ok()).expect("a port"))
}
