//! A test binary that starts itself as a separate process.

use std::{env, process::Command};

/// A command that runs this test binary with one ignored test only. `module` is the test's `module_path!()`.
pub fn child(module: &str, test: &str) -> Command {
    let within = module.split_once("::").map(|(_, path)| format!("{path}::"));
    let name = within.unwrap_or_default() + test;
    let mut command = Command::new(env::current_exe().expect("a test is a program"));
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    command
}
