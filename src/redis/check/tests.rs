use super::{Inspected, Risk};
use crate::redis::{connect_error::ConnectError, error::Error, judge::Judge, transport::Place};

fn risks(info: &str) -> Result<Vec<Risk>, ConnectError> {
    let inspected = Inspected {
        info: Some(Ok(info.replace('\n', "\r\n"))),
        failed: Vec::new(),
        works: true,
    };
    let judge = Judge {
        place: Place::Url,
        login: "url",
        prefix: "p:",
    };
    inspected.risks(&judge)
}

#[test]
fn a_server_before_6_2_is_refused() {
    for (version, is_old) in [
        ("2.8.24", true),
        ("6.0.20", true),
        ("6.2.0", false),
        ("7.2.4", false),
        ("10.0.1", false),
        ("unstable", false),
    ] {
        let found = risks(&format!("# Server\nredis_version:{version}\nrole:master\n"));
        let names_it = matches!(&found, Err(ConnectError::Version { found }) if found == version);
        assert_eq!(names_it, is_old, "{version}: {found:?}");
    }
}

#[test]
fn an_eviction_policy_is_a_risk_only_where_memory_is_bounded() {
    for (bytes, policy, is_risk) in [
        ("0", "allkeys-lru", false),
        ("1000000", "noeviction", false),
        ("1000000", "volatile-ttl", true),
    ] {
        let info = format!("maxmemory:{bytes}\nmaxmemory_human:1M\nmaxmemory_policy:{policy}\n");
        let expected = is_risk.then(|| Risk::Eviction {
            policy: policy.to_owned(),
        });
        assert_eq!(risks(&info).unwrap(), Vec::from_iter(expected), "{info}");
    }
}

#[test]
fn a_command_that_the_server_does_not_name_is_a_refusal() {
    let judge = Judge {
        place: Place::Url,
        login: "url",
        prefix: "p:",
    };
    for (command, said, is_named) in [
        ("", "unknown command ''", false),
        ("", "unknown: ''", false),
        ("SELECT 1", "unknown command", true),
    ] {
        let error = redis::make_extension_error("ERR".to_owned(), Some(said.to_owned()));
        let found = judge.judge(command, Error::Redis(error));
        let is_right = match &found {
            ConnectError::Command { name } => is_named && name == "SELECT",
            ConnectError::Refused { .. } => !is_named,
            _ => false,
        };
        assert!(is_right, "{said}: {found:?}");
    }
}
