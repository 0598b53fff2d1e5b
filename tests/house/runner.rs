//! The test runner, `tests/run`, with fake test programs, which print the output of libtest.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};
use tempfile::TempDir;

/// Runs a bash script that can call the runner's functions. Its `$1` is `folder`, which has the test program
/// `program-0` with the text `program`.
fn run(folder: &TempDir, program: &str, script: &str) -> Output {
    let path = folder.path().join("program-0");
    fs::write(&path, format!("#!/usr/bin/env bash\n{program}")).expect("it is written");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    fs::create_dir_all(folder.path().join("tests")).expect("the folder is ours");
    let sources = "source tests/run/bound.sh; source tests/run/pool.sh; source tests/run/tools.sh";
    Command::new("bash")
        .args(["-c", &format!("{sources}\n{script}"), "bash"])
        .arg(folder.path())
        .env("CARGO_TARGET_DIR", folder.path())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("bash is installed")
}

fn text(folder: &TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join(file)).expect("it is there")
}

#[test]
fn a_test_that_hangs_is_named_and_killed_with_the_processes_that_it_has_started() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let program = "
        printf 'test slow has been running for over 60 seconds\ntest slow ... ok\n'
        printf 'test hung has been running for over 60 seconds\n'
        sleep 60 &
        printf '%s' $! >started
        sleep 60";
    // The second argument of `run_logged` is an entry of the runner's list: a package's folder, and its test program.
    // The program reports 60 s at once, so the runner kills it after two. The processes may take a moment to end.
    let script = r#"longest=62
        run_logged "$1/tests" "$1 $1/program-0" && exit 3
        for try in {1..100}; do
            kill -0 "$(<"$1/started")" 2>/dev/null || exit 0
            sleep 0.1
        done
        exit 4"#;
    let output = run(&folder, program, script);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("test hung ... FAILED"), "{printed}");
    assert!(!printed.contains("test slow ... FAILED"), "{printed}");
    let named = "hung has not finished within 62 s";
    assert!(printed.contains(named), "{printed}");
}

/// Runs all tests of the program, which fails, then repeats the tests that have not passed, and prints the defects.
const RUN_TWICE: &str = r#"
    run_logged "$1/tests" "$1 $1/program-0" >"$1/first" && exit 3
    echo "$1 $1/program-0" >"$1/tests/again"
    again "$1/tests"
    result=$?
    print_defects
    exit "$result""#;

#[test]
fn a_test_that_passes_only_alone_is_a_defect_and_no_failure() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    // The first run ends before `late` has run.
    let program = r#"
        case "$*" in
            *--list*) printf '%s: test\n' fine late racy panics ;;
            --exact*)
                printf '%s\n' "$*" >again
                printf 'test result: ok. 2 passed\n'
                ;;
            *)
                printf 'test %s\n' 'fine ... ok' 'racy ... FAILED' 'panics - should panic ... ok'
                exit 101
                ;;
        esac"#;
    let output = run(&folder, program, RUN_TWICE);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&folder, "again").trim_end(), "--exact late racy");
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.lines().last().expect("it prints");
    assert!(last.starts_with("!!! - racy: see "), "{printed}");
    assert!(printed.contains("!!! Defects: 1."), "{printed}");
}

#[test]
fn a_test_that_fails_twice_is_a_failure_and_no_defect() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let program = r#"
        case "$*" in
            *--list*) printf 'broken: test\n' ;;
            *) printf 'test broken ... FAILED\n' && exit 101 ;;
        esac"#;
    let output = run(&folder, program, RUN_TWICE);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("Defects"), "{printed}");
}
