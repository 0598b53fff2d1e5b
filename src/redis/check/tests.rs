use super::{Info, Inspected, Risk};
use crate::redis::{
    fault::{ConnectError, Kind, Origin},
    transport::ServerRole,
};
use std::collections::BTreeSet;

fn risks(info: &str) -> Result<Vec<Risk>, ConnectError> {
    let inspected = Inspected {
        info: Info::Known(info.replace('\n', "\r\n")),
        failed: Vec::new(),
        denied: BTreeSet::new(),
        works: true,
    };
    let origin = Origin {
        role: ServerRole::Url,
        login: "url",
        prefix: "p:",
    };
    inspected.risks(&origin)
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
        let names_it = found.as_ref().is_err_and(|error| {
            error.kind() == Kind::Misconfigured && error.to_string().contains(version)
        });
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
