//! A wrong setting is named.

use crate::{process, soon};
use std::process::Stdio;

const WRONG: [(&str, &str); 9] = [
    ("PORT", "http"),
    ("PORT", "65536"),
    ("PORT", ""),
    ("LIMIT", "0"),
    ("LIMIT", "-1"),
    ("LIMIT", "4294967296"),
    ("LEASE_MS", "0"),
    ("LEASE_MS", "10s"),
    ("WAIT_MS", "soon"),
];

#[tokio::test]
async fn a_wrong_setting_is_named_and_nothing_starts() {
    for (name, value) in WRONG {
        let mut command = process::command(&[(name, value)]);
        let output = command.stderr(Stdio::piped()).output();
        let output = soon("the market gives up", output).await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{name}={value}");
        assert!(
            said.starts_with(&format!("{name}: ")),
            "{name}={value}: {said}"
        );
        assert!(output.stdout.is_empty(), "{name}={value}");
    }
}
