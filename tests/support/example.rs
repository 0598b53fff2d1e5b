//! The crate's examples, as processes of their own.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// What an example may take to say where it listens, on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// All that an example may be told by its environment.
const SETTINGS: [&str; 6] = ["PORT", "SITE", "REDIS_URL", "LIMIT", "LEASE_MS", "WAIT_MS"];

/// An example, about to start with these settings and no others. Killed when it is dropped.
pub(crate) fn command(name: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path(name));
    for name in SETTINGS {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied()).kill_on_drop(true);
    command
}

/// Where an example listens, which is its first line on a standard output that is piped.
pub(crate) async fn address(example: &mut Child) -> String {
    let stdout = example.stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(stdout).lines();
    let line = timeout(BOUND, lines.next_line()).await.expect("in time");
    let line = line.expect("stdout is text").expect("there is a line");
    let url = line.strip_prefix("listening on ").expect("it says where");
    url.to_owned()
}

/// Where an example is. `cargo test` has built it; `cargo test --test NAME` builds no examples, so
/// a missing one is built here, by the first who asks.
fn path(name: &str) -> PathBuf {
    static ONE_LOOKS: Mutex<()> = Mutex::new(());
    let _one = ONE_LOOKS.lock().expect("examples build");
    let test = env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).expect("it lies in PROFILE/deps");
    let example = profile.join(format!("examples/{name}{}", env::consts::EXE_SUFFIX));
    if !example.exists() {
        build(name, profile);
    }
    example
}

fn build(name: &str, folder: &Path) {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = folder.parent().expect("it lies in the target folder");
    let mut command = std::process::Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--example", name]);
    command.args(["--profile", profile, "--target-dir"]);
    let built = command
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    let built = built.expect("cargo runs").success();
    assert!(built, "the example {name} builds");
}
