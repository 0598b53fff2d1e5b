//! The Redis users that the guide creates may run their commands, and need each of their rights.

use crate::{
    fleet::Fleet,
    program::{Run, patient, run},
};
use std::collections::BTreeSet;
use std::time::Duration;
use testing::resp::Raw;
use tower_semaphore::{Operate, Policy, RedisSemaphore};

const GUIDE: &str = include_str!("../../../src/guide/terminal.rs");
const DEPLOY: &str = include_str!("../../../src/guide/deploy.rs");

/// The user of an application in the guide's chapter on deployment.
const APPLICATION: &str = "limits";

/// Commands that only read.
const LOOKS: [&str; 5] = [
    "keys concurrency",
    "usage concurrency ann",
    "top",
    "processes",
    "limits",
];

/// Commands that change something.
const ACTS: [&str; 6] = [
    "pause concurrency ann 30s --note 429",
    "resume concurrency ann",
    "set-limit concurrency ann 3",
    "set-limit concurrency ann default",
    // Bob's permit in `Fleet::start`: its process, and its number 73 in base 36.
    "revoke concurrency bob 00000000000000a1.21",
    "revoke concurrency ann --all --yes",
];

/// The command `ACL SETUSER` in a chapter of the guide that makes this user.
fn command(guide: &'static str, user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} ");
    let mut lines = guide.lines().map(|line| line.trim_start_matches("//! "));
    let line = lines.find(|line| line.starts_with(&start));
    line.expect("the guide has it").split_whitespace().collect()
}

async fn make(raw: &mut Raw, command: &[&str]) {
    let set = raw.cmd(command).await;
    assert!(set.error().is_none(), "{set:?}");
}

fn as_user(fleet: &Fleet, user: &str, args: &str) -> Run {
    let mut command = patient();
    command.args(["--url", &fleet.server.url(), "--user", user]);
    command.env("REDIS_PASSWORD", "PASSWORD");
    command.args(args.split(' '));
    run(command)
}

#[tokio::test]
async fn the_user_look_sees_all_and_changes_nothing() {
    let mut fleet = Fleet::start().await;
    let user = command(GUIDE, "look");
    make(&mut fleet.raw, &user).await;
    // So that `limits` finds one.
    fleet.limit("concurrency:ann", "5", "").await;
    for args in LOOKS {
        let run = as_user(&fleet, "look", args);
        assert_eq!((run.code, &*run.err), (Some(0), ""), "{args}: {run:?}");
    }
    let shown = as_user(&fleet, "look", "usage concurrency ann").out;
    assert!(shown.contains("web-1 4711 market"), "{shown}");
    for args in ACTS {
        let run = as_user(&fleet, "look", args);
        assert_eq!(run.code, Some(3), "{args}: {run:?}");
    }
    let after = as_user(&fleet, "look", "usage concurrency ann").out;
    assert_eq!(shown, after);
}

#[tokio::test]
async fn the_user_act_may_run_all_commands() {
    let mut fleet = Fleet::start().await;
    make(&mut fleet.raw, &command(GUIDE, "act")).await;
    // First a limit, so that `limits` finds one.
    for args in ["set-limit concurrency ann 3"]
        .into_iter()
        .chain(LOOKS)
        .chain(ACTS)
    {
        let run = as_user(&fleet, "act", args);
        assert_eq!((run.code, &*run.err), (Some(0), ""), "{args}: {run:?}");
    }
}

#[tokio::test]
async fn the_user_look_needs_each_right() {
    let rights = command(GUIDE, "look");
    for right in rights.iter().filter(|word| word.starts_with('+')) {
        let mut fleet = Fleet::start().await;
        make(&mut fleet.raw, &rights).await;
        make(
            &mut fleet.raw,
            &["ACL", "SETUSER", "look", &right.replacen('+', "-", 1)],
        )
        .await;
        fleet.limit("concurrency", "5", "").await;
        let works = |args: &&str| {
            let run = as_user(&fleet, "look", args);
            // Without the right to read names, `processes` still succeeds.
            let has_names = *args != "processes" || run.out.contains("web-1");
            run.code == Some(0) && has_names
        };
        assert!(!LOOKS.iter().all(works), "{right} is not needed");
    }
}

/// The commands that a script runs.
fn scripted(script: &str) -> BTreeSet<String> {
    let calls = script.split("call('").skip(1);
    let names = calls.filter_map(|call| call.split_once('\'').map(|(name, _)| name));
    names.map(str::to_lowercase).collect()
}

#[test]
fn the_user_act_has_the_rights_of_the_user_look_and_of_the_scripts() {
    let rights_of = |user| {
        let words = command(GUIDE, user).into_iter();
        let names = words.filter_map(|word| word.strip_prefix('+'));
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let mut expected = rights_of("look");
    for script in [
        include_str!("../../../proto/src/verbs/common.lua"),
        include_str!("../../../proto/src/verbs/grant.lua"),
        include_str!("../../../proto/src/verbs/pause.lua"),
        include_str!("../../../proto/src/verbs/revoke.lua"),
        include_str!("../../../proto/src/verbs/limits.lua"),
    ] {
        expected.extend(scripted(script));
    }
    assert_eq!(rights_of("act"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_s_user_pauses_and_resumes() {
    let mut fleet = Fleet::empty().await;
    make(&mut fleet.raw, &command(DEPLOY, APPLICATION)).await;
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let store = builder
        .connect(fleet.server.url_of(&format!("{APPLICATION}:PASSWORD")))
        .await;
    let (store, policy, key) = (store.expect("it connects"), Policy::DEFAULT, "ann".into());
    let paused = store.pause(&policy, &key, Duration::from_secs(3_600), "429");
    paused.await.expect("it may");
    assert!(store.resume(&policy, &key).await.expect("it may"));
}

#[tokio::test]
async fn an_application_s_user_sets_no_limit() {
    let mut fleet = Fleet::start().await;
    make(&mut fleet.raw, &command(DEPLOY, APPLICATION)).await;
    let run = as_user(&fleet, APPLICATION, "set-limit concurrency ann 3");
    assert_eq!(run.code, Some(3), "{run:?}");
    let check = as_user(&fleet, APPLICATION, "check");
    assert_eq!(check.code, Some(0), "{check:?}");
}
