//! A test binary that starts itself, to be a process of its own.

use std::{env, process::Command};

/// This very test binary, about to run one ignored test and no other. `module` is the test's `module_path!()`.
pub fn child(module: &str, test: &str) -> Command {
    let within = module.split_once("::").map(|(_, path)| format!("{path}::"));
    let name = within.unwrap_or_default() + test;
    let mut command = Command::new(env::current_exe().expect("a test is a program"));
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    command
}
