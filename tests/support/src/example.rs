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

/// How long an example may take to start to listen on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// All variables in the environment that an example reads.
const SETTINGS: [&str; 13] = [
    "PORT",
    "SITE",
    "REDIS_URL",
    "REDIS_CLUSTER",
    "REDIS_SENTINELS",
    "REDIS_SENTINEL_NAME",
    "REDIS_CA",
    "LIMIT",
    "FLEET_LIMIT",
    "LEASE_MS",
    "WAIT_MS",
    "MAX_STALL_MS",
    "WHEN_UNAVAILABLE",
];

/// An example, about to start with these settings and no others. Killed when it is dropped.
pub fn command(name: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path(name));
    for name in SETTINGS {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied()).kill_on_drop(true);
    command
}

/// The address where an example listens, which it prints first on its standard output.
pub async fn address(example: &mut Child) -> String {
    let address = try_address(example).await;
    address.expect("it prints something")
}

/// The same, unless the example ends before it listens.
pub async fn try_address(example: &mut Child) -> Option<String> {
    let stdout = example.stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(stdout).lines();
    let first = timeout(BOUND, lines.next_line()).await.expect("in time");
    let first = first.expect("stdout is text")?;
    let url = first.strip_prefix("listening on ").expect("it says where");
    Some(url.to_owned())
}

/// The path of an example. `cargo test` has built it; `cargo test --test NAME` builds no examples,
/// so a missing one is built here, once.
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
    command.arg(target);
    if cfg!(feature = "metrics") {
        command.args(["--features", "metrics"]);
    }
    if cfg!(feature = "tls-rustls") {
        command.args(["--features", "tls-rustls"]);
    }
    if cfg!(feature = "tls-native-tls") {
        command.args(["--features", "tls-native-tls"]);
    }
    let built = command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status();
    let built = built.expect("cargo runs").success();
    assert!(built, "the example {name} builds");
}
