//! Keys, labels, names and notes may contain any characters. The command prints none of their control characters
//! unescaped.

use crate::{
    fleet::{Claim, Fleet, MARKET},
    program::{Run, run_line, run_on},
};
use serde_json::Value;

/// True if a text has no character that a terminal obeys, except line ends.
fn is_harmless(text: &str) -> bool {
    let turns = |character| matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_obeyed = |character: char| character != '\n' && character.is_control();
    !text
        .chars()
        .any(|character| is_obeyed(character) || turns(character))
}

fn assert_harmless(run: &Run) {
    assert!(is_harmless(&run.out) && is_harmless(&run.err), "{run:?}");
}

/// ESC [ 2 J, C1's CSI, a line end and RIGHT-TO-LEFT OVERRIDE, encoded as in the names of Redis keys, encoded as in
/// ids, and as they are.
const KEY: &str = "%1B%5B2J%C2%9B2J%0Aa%E2%80%AEb";
const LABEL: &str = "~1B~5B2J~C2~9B2J~0Aa~E2~80~AEb";
const TEXT: &str = "\x1b[2J\u{9b}2J\na\u{202e}b";

async fn fleet() -> Fleet {
    let mut fleet = Fleet::empty().await;
    fleet
        .process(MARKET, &format!("{KEY} 4711 {KEY} {KEY}"))
        .await;
    let share_flow_label = &format!("1.{LABEL}.{LABEL}");
    let hostile = Claim {
        process: MARKET,
        permit: 1,
        weight: 1,
        share_flow_label,
    };
    fleet.holds(KEY, hostile).await;
    fleet
        .waits(
            KEY,
            Claim {
                permit: 2,
                ..hostile
            },
        )
        .await;
    fleet
}

#[tokio::test]
async fn nothing_that_a_terminal_obeys_is_printed() {
    let fleet = fleet().await;
    for args in [
        &["pause", "concurrency", TEXT, "1h", "--note", TEXT][..],
        &["keys", "concurrency"],
        &["usage", "concurrency", TEXT],
        &["top"],
        &["processes"],
        &["set-limit", "concurrency", TEXT, "3", "--note", TEXT],
        &["set-limit", TEXT, TEXT, "3"],
        &["limits"],
        &["revoke", "concurrency", TEXT, TEXT],
        &["resume", "concurrency", TEXT],
        &["resume", TEXT, TEXT],
        &["usage", TEXT, "nobody"],
        &["revoke", "concurrency", TEXT, "--all", "--yes"],
    ] {
        for form in [&[][..], &["--json"]] {
            let run = run_on(&fleet.server, &[form, args].concat());
            assert!(matches!(run.code, Some(0 | 1)), "{args:?}: {run:?}");
            assert_harmless(&run);
        }
    }
    for wrong in [
        &["--url", TEXT, "keys", "concurrency"],
        &["pause", "concurrency", "ann", TEXT],
    ] {
        let run = run_on(&fleet.server, wrong);
        assert_eq!(run.code, Some(2), "{wrong:?}: {run:?}");
        assert_harmless(&run);
    }
}

#[tokio::test]
async fn json_has_the_key_by_which_it_is_found_again() {
    let fleet = fleet().await;
    let keys = run_line(&fleet.server, "--json keys concurrency");
    let key: Value = serde_json::from_str(&keys.out).expect("JSON");
    assert_eq!(key["key"], TEXT);
    let usage = run_on(&fleet.server, &["--json", "usage", "concurrency", TEXT]);
    let usage: Value = serde_json::from_str(&usage.out).expect("JSON");
    assert_eq!(usage["held"][0]["label"], TEXT);
    assert_eq!(usage["held"][0]["process"]["host"], TEXT);
}

#[cfg(unix)]
#[tokio::test]
async fn a_key_that_is_not_utf_8_is_found_by_its_bytes() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let mut fleet = Fleet::empty().await;
    let claim = Claim {
        process: MARKET,
        permit: 1,
        weight: 1,
        share_flow_label: "..",
    };
    fleet.holds("a%FF", claim).await;
    let keys = run_line(&fleet.server, "--json keys concurrency");
    let key: Value = serde_json::from_str(&keys.out).expect("JSON");
    assert_eq!(key["key_hex"], "61ff");
    let args = ["usage", "concurrency"].map(OsStr::new);
    let args = [&args[..], &[OsStr::from_bytes(b"a\xff")]].concat();
    let usage = run_on(&fleet.server, &args);
    assert!(
        usage.out.starts_with(r"concurrency a\xff: limit 5"),
        "{usage:?}"
    );
}
