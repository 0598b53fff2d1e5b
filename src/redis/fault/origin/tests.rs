use super::*;
use redis::{ErrorKind, parse_redis_value};
use std::{io, time::Duration};

fn origin(role: ServerRole) -> Origin<'static> {
    origin_of(role, "url")
}

/// `login` is the setting that has the user and the password.
fn origin_of(role: ServerRole, login: &'static str) -> Origin<'static> {
    Origin {
        role,
        login,
        prefix: "p:",
    }
}

/// The answer of a server.
fn answer(text: &str) -> CallError {
    let value = parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error is a value");
    let redis::Value::ServerError(error) = value else {
        panic!("{text} is no error");
    };
    CallError::Redis(error.into())
}

#[test]
fn each_mistake_names_its_setting_and_its_remedy() {
    for (role, text, setting, remedy) in [
        (ServerRole::Url, "NOAUTH x", Some("url"), "add it"),
        (ServerRole::Sentinel, "WRONGPASS x", Some("url"), "correct"),
        (
            ServerRole::Url,
            "ERR AUTH <password> called without any password configured",
            Some("url"),
            "remove it",
        ),
        (
            ServerRole::Url,
            "ERR DB index is out of range",
            Some("url"),
            "name another",
        ),
        (
            ServerRole::Url,
            "ERR Client sent AUTH, but no password is set",
            Some("url"),
            "remove it",
        ),
        (
            ServerRole::Url,
            "ERR invalid password",
            Some("url"),
            "correct",
        ),
        (ServerRole::Url, "ERR unauth", Some("url"), "add it"),
        (
            ServerRole::Url,
            "ERR database out of range",
            Some("url"),
            "name another",
        ),
        (
            ServerRole::Url,
            "ERR invalid DB index",
            Some("url"),
            "name another",
        ),
        (
            ServerRole::Url,
            "DENIED Redis is running in protected mode",
            Some("url"),
            "set a password",
        ),
        (
            ServerRole::Url,
            "NOPROTO x",
            Some("url"),
            "remove `protocol`",
        ),
        (
            ServerRole::Url,
            "MOVED 1 h:1",
            Some("url"),
            "`connect_cluster`",
        ),
        (ServerRole::Url, "READONLY x", Some("url"), "its primary"),
        (
            ServerRole::Url,
            "WRONGTYPE x",
            Some("prefix"),
            "choose another",
        ),
        (
            ServerRole::Node,
            "ERR This instance has cluster support disabled",
            Some("connect_cluster"),
            "`connect`",
        ),
        (
            ServerRole::Sentinel,
            "ERR unknown command 'SENTINEL'",
            Some("connect_sentinel"),
            "`connect`",
        ),
        (
            ServerRole::Url,
            "NOPERM User ann has no permissions to run the 'zadd' command",
            None,
            "allow `+zadd`",
        ),
        (
            ServerRole::Url,
            "ERR unknown command 'EVAL'",
            None,
            "allow `+eval`",
        ),
        (
            ServerRole::Url,
            "NOPERM No permissions to access a key",
            None,
            "allow `~p:*`",
        ),
        (
            ServerRole::Url,
            "NOPERM No permissions to access a channel",
            None,
            "allow `&p:*`",
        ),
    ] {
        let error = origin(role).check_error("", answer(text));
        assert_eq!(
            (error.kind(), error.setting()),
            (Kind::Misconfigured, setting),
            "{text}"
        );
        assert!(error.to_string().contains(remedy), "{text}: {error}");
        let cause = error.redis_error().and_then(RedisError::code);
        assert_eq!(cause, text.split(' ').next(), "{error:?}");
    }
}

#[test]
fn a_login_that_is_refused_names_the_setting_that_has_it() {
    for (role, login) in [
        (ServerRole::Primary, "credentials"),
        (ServerRole::Node, "url"),
    ] {
        let error = origin_of(role, login).check_error("", answer("WRONGPASS x"));
        assert_eq!(error.setting(), Some(login), "{role:?}");
    }
}

#[test]
fn the_failure_of_a_users_function_is_unavailable_and_names_the_function() {
    let failed = || CallError::unconnected(Failed::error("credentials", "no token".into()));
    let connecting = origin(ServerRole::Url).connect_error(failed());
    let claim = origin(ServerRole::Url).error(&failed());
    let text = "credentials: it has failed, so there is no connection to Redis";
    let expected = (Kind::Unavailable, Some("credentials"), text.to_owned());
    let found = |kind, setting, text| assert_eq!((kind, setting, text), expected);
    found(
        connecting.kind(),
        connecting.setting(),
        connecting.to_string(),
    );
    found(claim.kind(), claim.setting(), claim.to_string());
    let causes = std::iter::successors(std::error::Error::source(&claim), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    assert_eq!(causes, ["`credentials` has failed", "no token"]);
}

#[test]
fn a_mistake_that_a_connection_shows_names_its_setting_and_its_remedy() {
    let handshake = |text: &str| {
        let error = io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        Unfit::Handshake(error.into())
    };
    for (unfit, setting, remedy) in [
        (Unfit::SpeaksTls, "url", "needs `rediss://`"),
        (Unfit::SpeaksNoTls, "url", "needs `redis://`"),
        (Unfit::WrongName, "connect_sentinel", "correct it"),
        (
            Unfit::WrongConnector,
            "connector",
            "`AsyncConnectionConfig`",
        ),
        (Unfit::EndsAt("EVAL"), "url", "connect to Redis itself"),
        (handshake("UnknownIssuer"), "root_certificate", "trust"),
        (
            handshake("received fatal alert: CertificateRequired"),
            "client_certificate",
            "refuses the certificate",
        ),
    ] {
        let shown = format!("{unfit:?}");
        let error = origin(ServerRole::Url).connect_error(CallError::unconnected(unfit));
        assert_eq!(
            (error.kind(), error.setting()),
            (Kind::Misconfigured, Some(setting)),
            "{shown}"
        );
        assert!(error.to_string().contains(remedy), "{shown}: {error}");
        assert!(error.redis_error().is_some(), "{shown}");
    }
}

#[test]
fn a_failure_that_may_pass_is_unavailable_at_the_start_and_names_no_setting() {
    for (role, text) in [
        (ServerRole::Url, "LOADING x"),
        (ServerRole::Url, "OOM x"),
        (ServerRole::Url, "TRYAGAIN x"),
        (ServerRole::Url, "CLUSTERDOWN Hash slot not served"),
        (ServerRole::Url, "ERR Connection refused"),
        (ServerRole::Node, "MOVED 1 h:1"),
        (ServerRole::Primary, "READONLY x"),
    ] {
        let error = origin(role).check_error("", answer(text));
        assert_eq!(
            (error.kind(), error.setting()),
            (Kind::Unavailable, None),
            "{text}: {error}"
        );
    }
}

#[test]
fn the_kind_of_a_claims_error_shows_the_remedy() {
    let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
    let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "a wrong password"));
    for (error, kind) in [
        (CallError::Congested, Kind::Retry),
        (CallError::Expired(Duration::ZERO), Kind::Retry),
        (answer("TRYAGAIN x"), Kind::Retry),
        (answer("ERR Connection refused"), Kind::Retry),
        (answer("MOVED 1 h:1"), Kind::Retry),
        (CallError::Timeout(Duration::ZERO), Kind::Unavailable),
        (CallError::NotReplicated(0), Kind::Unavailable),
        (CallError::Unavailable(refused()), Kind::Unavailable),
        (answer("LOADING x"), Kind::Unavailable),
        (answer("READONLY x"), Kind::Unavailable),
        (
            answer("CLUSTERDOWN Hash slot not served"),
            Kind::Unavailable,
        ),
        (CallError::Reply, Kind::OneKey),
        (answer("WRONGTYPE x"), Kind::OneKey),
        (
            answer("NOPERM No permissions to access a key"),
            Kind::OneKey,
        ),
        (CallError::PausedClock, Kind::Misconfigured),
        (CallError::Unavailable(wrong), Kind::Misconfigured),
        (
            answer("NOPERM User ann has no permissions to run the 'zadd' command"),
            Kind::Misconfigured,
        ),
    ] {
        let shown = origin(ServerRole::Url).error(&error);
        assert_eq!(shown.kind(), kind, "{error:?}");
    }
    let few = origin(ServerRole::Url).error(&CallError::NotReplicated(0));
    assert_eq!(few.setting(), Some("min_replicas"));
}

#[test]
fn a_command_that_the_server_does_not_name_is_left_to_a_check() {
    for (command, said, is_named) in [
        ("", "unknown command ''", false),
        ("", "unknown: ''", false),
        ("SELECT 1", "unknown command", true),
    ] {
        let error = make_extension_error("ERR".to_owned(), Some(said.to_owned()));
        let found = origin(ServerRole::Url).check_error(command, CallError::Redis(error));
        let text = found.to_string();
        assert_eq!(text.contains("SELECT"), is_named, "{said}: {text}");
        assert_eq!(text == UNNAMED, !is_named, "{said}: {text}");
    }
}
