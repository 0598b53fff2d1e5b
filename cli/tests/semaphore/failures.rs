//! Commands that fail: the status shows the kind of failure, and the message names the remedy.

use crate::{
    fleet::Fleet,
    program::{patient, program, run, run_line, run_on},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::Stdio,
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, resp::Raw};

/// The bound for a command that should fail within a second. It is longer, because the machine may be busy.
const BUSY: Duration = Duration::from_secs(5);

#[test]
fn a_server_that_is_not_there_is_status_3_within_a_second() {
    let mut server = RedisServer::start();
    server.kill();
    let start = Instant::now();
    let mut command = program();
    command.args(["--url", &server.url(), "usage", "concurrency", "ann"]);
    let run = run(command);
    assert!(start.elapsed() < BUSY);
    assert_eq!((run.code, &*run.out), (Some(3), ""), "{run:?}");
    assert!(run.err.contains("Redis is unavailable"), "{run:?}");
}

#[test]
fn a_server_that_does_not_answer_is_status_3_within_a_second() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for (timeout, shown) in [(&[][..], "950ms"), (&["--connect-timeout", "0.3"], "300ms")] {
        let start = Instant::now();
        let mut command = program();
        command.args(timeout);
        command.args(["--url", &format!("redis://{address}/"), "processes"]);
        let run = run(command);
        assert!(start.elapsed() < BUSY);
        assert_eq!(run.code, Some(3), "{run:?}");
        let late = format!("Redis has not answered within {shown}; --connect-timeout changes it");
        assert!(run.err.contains(&late), "{run:?}");
    }
}

#[test]
fn nothing_found_is_status_1() {
    let server = RedisServer::start();
    for args in [
        "keys concurrency",
        "usage concurrency nobody",
        "top",
        "processes",
        "limits",
        "revoke concurrency nobody x",
        "revoke concurrency nobody --all --yes",
        "resume concurrency nobody",
    ] {
        let run = run_line(&server, args);
        assert_eq!((run.code, &*run.out), (Some(1), ""), "{args}: {run:?}");
        assert!(run.err.starts_with("semaphore: "), "{args}: {run:?}");
    }
}

#[test]
fn wrong_arguments_are_status_2() {
    let server = RedisServer::start();
    for args in [
        "",
        "usage concurrency",
        "revoke concurrency ann",
        "set-limit concurrency",
        "set-limit concurrency ann many",
        "set-limit concurrency ann -1",
        "set-limit lock 5",
        "set-limit lock ann 5",
        // Two spaces, or one at the end, make an empty key.
        "set-limit concurrency  5",
        "pause concurrency ann",
        "pause concurrency  30s",
        "resume concurrency",
        "resume concurrency ",
        "top --every 0",
        "nonsense",
        "--cluster --sentinel shop keys concurrency",
        "--ca /nowhere keys concurrency",
        "--password-file /nowhere keys concurrency",
        "--prefix { keys concurrency",
        // `run_line` has passed a URL already, and two need `--cluster` or `--sentinel`.
        "--url redis://127.0.0.1:1/ keys concurrency",
        // A user without a password.
        "--user ann keys concurrency",
    ] {
        let run = run_line(&server, args);
        assert_eq!((run.code, &*run.out), (Some(2), ""), "{args}: {run:?}");
    }
}

#[test]
fn a_wrong_length_of_a_pause_is_refused_with_the_reason() {
    let server = RedisServer::start();
    for (time, reason) in [
        ("30", "1h30m"),
        ("soon", "1h30m"),
        ("1.5h", "1h30m"),
        ("0s", "at least 1ms"),
        ("32d", "at most 31d"),
    ] {
        let run = run_line(&server, &format!("pause concurrency ann {time}"));
        assert_eq!((run.code, &*run.out), (Some(2), ""), "{time}: {run:?}");
        assert!(
            run.err.contains("TIME: ") && run.err.contains(reason),
            "{run:?}"
        );
    }
}

/// A server with two users: `ann` has two passwords, and `default` one.
async fn guarded() -> RedisServer {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let user = [
        "ACL", "SETUSER", "ann", "on", ">se cret", ">se,cret", "~*", "&*", "+@all",
    ];
    assert!(raw.cmd(&user).await.error().is_none());
    let rule = ["ACL", "SETUSER", "default", "resetpass", ">other"];
    assert!(raw.cmd(&rule).await.error().is_none());
    server
}

#[tokio::test]
async fn a_password_comes_from_the_environment_or_a_file_and_never_from_an_argument() {
    let server = guarded().await;
    let url = server.url();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, "se cret\n").expect("a file");
    let file = file.to_str().expect("text");
    let host = url.replacen("redis://", "", 1);
    let ann = format!("redis://ann:se%20cret@{host}");
    let check = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = program();
        command
            .args(arguments)
            .arg("check")
            .envs(variables.iter().copied());
        run(command)
    };
    let with_comma = format!("redis://ann:se,cret@{host}");
    let without_password = format!("redis://ann@{host}");
    let secret = ("REDIS_PASSWORD", "se cret");
    for (arguments, variables) in [
        (&["--url", &url, "--user", "ann"][..], &[secret][..]),
        (&["--url", &without_password], &[secret]),
        (
            &["--url", &url, "--user", "ann", "--password-file", file],
            &[],
        ),
        (&[], &[("REDIS_URL", &*ann)]),
        (&[], &[("REDIS_URL", &*with_comma)]),
        (&["--url", &url], &[("REDIS_PASSWORD", "other")]),
    ] {
        let run = check(arguments, variables);
        assert_eq!(run.code, Some(0), "{arguments:?} {variables:?}: {run:?}");
    }
    let public = check(&["--url", &ann], &[]);
    assert_eq!(public.code, Some(2), "{public:?}");
    assert!(public.err.contains("REDIS_PASSWORD") && !public.err.contains("cret"));
}

#[tokio::test]
async fn a_wrong_password_is_status_3_and_is_not_printed() {
    let server = guarded().await;
    for (user, password) in [("ann", "wr0ng"), ("bob", "wr0ng")] {
        let mut command = patient();
        command.args([
            "--url",
            &server.url(),
            "--user",
            user,
            "keys",
            "concurrency",
        ]);
        command.env("REDIS_PASSWORD", password);
        let run = run(command);
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(
            run.err.contains("password") && !run.err.contains("wr0ng"),
            "{run:?}"
        );
    }
    let none = run_line(&server, "keys concurrency");
    assert_eq!(none.code, Some(3), "{none:?}");
}

#[tokio::test]
async fn a_reader_that_closes_the_pipe_early_is_no_failure() {
    let mut fleet = Fleet::empty().await;
    // More than the pipe holds, so the program still writes when the reader has left.
    fleet.keys(20_000).await;
    let mut command = crate::program::on(&fleet.server);
    command
        .args(["keys", "concurrency"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    drop(out);
    let mut err = String::new();
    let mut pipe = child.stderr.take().expect("it is piped");
    pipe.read_to_string(&mut err).expect("text");
    let code = child.wait().expect("it ends").code();
    assert_eq!((code, &*err), (Some(0), ""));
}

#[test]
fn a_single_server_as_a_cluster_is_a_wrong_argument() {
    let server = RedisServer::start();
    let run = run_on(&server, &["--cluster", "keys", "concurrency"]);
    assert!(
        run.code == Some(2) && run.err.contains("--cluster: "),
        "{run:?}"
    );
}
