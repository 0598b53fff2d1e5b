//! The output of each command equals a file, byte for byte. `BLESS=1` rewrites the files.

use crate::{
    fleet::Fleet,
    program::{Run, run_line},
};
use serde_json::{Value, json};
use std::{env, fs, path::PathBuf};
use testing::redis::RedisServer;

fn path(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/semaphore/golden");
    folder.join(format!("{name}.txt"))
}

/// Asserts that the output equals the file.
pub(crate) fn assert_golden(name: &str, printed: &str) {
    if env::var_os("BLESS").is_some() {
        fs::write(path(name), printed).expect("the file is written");
    }
    let expected = fs::read_to_string(path(name)).unwrap_or_default();
    assert!(
        printed == expected,
        "{name}:\n{printed}\nexpected:\n{expected}"
    );
}

fn assert_done(run: &Run) {
    assert_eq!((run.code, &*run.err), (Some(0), ""), "{run:?}");
}

/// `429: Retry-After`, encoded like the label in a permit's id.
const NOTE: &str = "429~3A~20Retry-After";

#[tokio::test]
async fn tables_are_as_documented() {
    let mut fleet = Fleet::start().await;
    fleet.add_pause("carl", NOTE).await;
    for (name, args) in [
        ("usage", "usage concurrency ann"),
        ("usage-paused", "usage concurrency carl"),
        ("top", "top"),
        ("processes", "processes"),
        ("check", "check"),
        // Bob's permit has the number 73, which is `21` in base 36.
        ("revoke", "revoke concurrency bob 00000000000000a1.21"),
    ] {
        let run = run_line(&fleet.server, args);
        assert_done(&run);
        assert_golden(name, &run.out);
    }
}

#[tokio::test]
async fn keys_are_listed_with_their_counts_and_pauses() {
    let mut fleet = Fleet::start().await;
    fleet.add_pause("carl", NOTE).await;
    let run = run_line(&fleet.server, "keys concurrency");
    assert_done(&run);
    let mut lines: Vec<_> = run.out.lines().collect();
    // Below the heading, the server decides the order.
    lines[1..].sort_unstable();
    assert_golden("keys", &(lines.join("\n") + "\n"));
}

/// The output's lines as JSON values.
pub(crate) fn parsed(server: &RedisServer, args: &str) -> Vec<Value> {
    let run = run_line(server, &format!("--json {args}"));
    assert_done(&run);
    let values = run.out.lines().map(serde_json::from_str);
    values.collect::<Result<_, _>>().expect("each line is JSON")
}

#[tokio::test]
async fn json_is_as_documented() {
    let fleet = Fleet::start().await;
    let json = |args| parsed(&fleet.server, args);
    let ann = json!({"key": "ann", "units": 3, "waiting": 2, "pause": null});
    let bob = json!({"key": "bob", "units": 1, "waiting": 0, "pause": null});
    let mut keys = json("keys concurrency");
    keys.sort_by_key(|key| key["key"].to_string());
    assert_eq!(keys, [ann, bob]);

    let usage = &json("usage concurrency ann")[0];
    assert_eq!((&usage["limit"], &usage["units"]), (&json!(5), &json!(3)));
    let export = &usage["held"][0];
    assert_eq!(export["label"], "GET /market/export");
    assert_eq!(export["process"]["host"], "web-1");
    assert_eq!(usage["waiting"][1]["flow"], "team-7");

    let top = &json("top")[0];
    assert_eq!(
        (&top["keys"], &top["units"], &top["waiting"], &top["paused"]),
        (&json!(2), &json!(4), &json!(2), &json!(0))
    );
    let longest = json!([{"key": "ann", "units": 3, "waiting": 2, "limit": 5, "pause": null}]);
    assert_eq!(top["longest"], longest);

    let processes = json("processes");
    let market = json!({"id": "00000000000000a1", "host": "web-1", "pid": 4711, "name": "market", "version": "0.1.0"});
    assert_eq!(processes[0], market);
    assert_eq!(json("check"), [json!({"risks": []})]);
    let id = export["id"].as_str().expect("an id");
    let revoked = json(&format!("revoke concurrency ann {id}"));
    assert_eq!(revoked, [json!({"revoked": [id]})]);
}

#[tokio::test]
async fn a_pause_is_in_the_json_of_each_command_that_shows_keys() {
    let mut fleet = Fleet::start().await;
    fleet.add_pause("carl", NOTE).await;
    let json = |args| parsed(&fleet.server, args);
    let usage = json("usage concurrency carl").remove(0);
    let pause = &usage["pause"];
    assert_eq!(pause["note"], "429: Retry-After");
    let [since, now, until] = [&pause["since"], &usage["now"], &pause["until"]]
        .map(|time| time.as_u64().expect("a time"));
    assert!(since < now && now < until, "{usage}");
    assert_eq!(
        (&usage["held"], &usage["waiting"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(json("usage concurrency ann")[0]["pause"], Value::Null);

    let carl = json!({"key": "carl", "units": 0, "waiting": 0, "pause": pause});
    assert!(json("keys concurrency").contains(&carl));
    let top = json("top").remove(0);
    assert_eq!((&top["keys"], &top["paused"]), (&json!(3), &json!(1)));
    let mut carl = carl;
    carl["limit"] = Value::Null;
    assert_eq!(top["fullest"][2], carl);
}

#[test]
fn the_guide_shows_what_is_printed() {
    let guide = include_str!("../../../src/guide/terminal.rs");
    let lines: Vec<_> = guide
        .lines()
        .map(|line| line.trim_start_matches("//!").trim())
        .collect();
    let guide = lines.join("\n");
    for file in fs::read_dir(path("").parent().expect("a folder")).expect("the files") {
        let file = file.expect("a file").path();
        let text = fs::read_to_string(&file).expect("text");
        let text: Vec<_> = text.lines().map(str::trim).collect();
        assert!(
            guide.contains(&text.join("\n")),
            "the guide lacks {}",
            file.display()
        );
    }
}

#[test]
fn completions_and_manual_pages_are_written() {
    let server = RedisServer::start();
    for shell in ["bash", "zsh", "fish"] {
        let run = run_line(&server, &format!("completions {shell}"));
        assert_done(&run);
        for command in ["set-limit", "resume"] {
            assert!(run.out.contains(command), "{shell}: {command}");
        }
    }
    let page = run_line(&server, "man");
    assert_done(&page);
    assert!(page.out.contains(".TH semaphore 1") && page.out.contains("REDIS_PASSWORD"));
    let folder = tempfile::tempdir().expect("a folder");
    let pages = run_line(&server, &format!("man {}", folder.path().display()));
    assert_done(&pages);
    let page = folder.path().join("semaphore-set-limit.1");
    let page = fs::read_to_string(page).expect("each command has a page");
    // A value of LIMIT, beside a number.
    assert!(page.contains("default"));
    let page = folder.path().join("semaphore-pause.1");
    let page = fs::read_to_string(page).expect("each command has a page");
    assert!(page.contains("1h30m"));
}
