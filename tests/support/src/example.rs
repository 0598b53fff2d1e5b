//! The crate's examples, run as separate processes.

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

/// The bound for an example to start listening on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// All environment variables that examples read.
const SETTINGS: [&str; 21] = [
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
    "KEY_LIMIT",
    "KEY_TPM",
    "MODEL_TPM",
    "UPSTREAMS",
    "UPSTREAM_LIMIT",
    "WORD_MS",
    "ESTIMATE",
    "COOLDOWN_MS",
];

/// A command for an example with these settings and no others. The process is killed when it is dropped.
pub fn command(name: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path(name));
    for name in SETTINGS {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied()).kill_on_drop(true);
    command
}

/// The address on which an example listens. The example prints it first on its standard output.
pub async fn address(example: &mut Child) -> String {
    let address = try_address(example).await;
    address.expect("it prints something")
}

/// Like `address`, but `None` if the example ends before it listens.
pub async fn try_address(example: &mut Child) -> Option<String> {
    let stdout = example.stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(stdout).lines();
    let first = timeout(BOUND, lines.next_line()).await.expect("in time");
    let first = first.expect("stdout is text")?;
    let url = first
        .strip_prefix("listening on ")
        .expect("it prints its address");
    Some(url.to_owned())
}

/// The path of an example. `cargo test` has built it. `cargo test --test NAME` builds no examples, so a missing example
/// is built here, once.
fn path(name: &str) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _build = BUILD.lock().expect("examples build");
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
