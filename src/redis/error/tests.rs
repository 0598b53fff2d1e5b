use super::*;
use redis::{ErrorKind, parse_redis_value};
use std::io;

fn unavailable() -> CallError {
    CallError::Unavailable(io::Error::from(io::ErrorKind::ConnectionRefused).into())
}

fn broken() -> CallError {
    CallError::Redis(io::Error::from(io::ErrorKind::BrokenPipe).into())
}

/// A server's error with this code.
fn error_with_code(code: &str) -> CallError {
    let reply = format!("-{code} and some text\r\n");
    let value = parse_redis_value(reply.as_bytes()).expect("an answer");
    let error = value.extract_error().expect_err("an error");
    assert_eq!(error.code(), Some(code));
    CallError::Redis(error)
}

fn each(errors: &[CallError], is_it: impl Fn(&CallError) -> bool) -> Vec<bool> {
    errors.iter().map(is_it).collect()
}

#[test]
fn only_a_broken_connection_is_a_disconnect() {
    let errors = [
        unavailable(),
        CallError::Congested,
        CallError::Timeout(Duration::ZERO),
        broken(),
        error_with_code("ERR"),
        CallError::Reply,
    ];
    let [yes, no] = [true, false];
    let disconnect = each(&errors, CallError::is_disconnect);
    assert_eq!(disconnect, [no, no, no, yes, no, no]);
}

#[test]
fn a_servers_error_is_recognized_by_its_code() {
    let codes = ["READONLY", "CROSSSLOT", "NOSCRIPT", "WRONGTYPE", "ERR"];
    let errors = codes.map(error_with_code);
    let [yes, no] = [true, false];
    assert_eq!(
        each(&errors, |error| error.is_code(&["READONLY"])),
        [yes, no, no, no, no]
    );
    assert_eq!(
        each(&errors, |error| error.is_code(&["NOSCRIPT"])),
        [no, no, yes, no, no]
    );
}

#[test]
fn a_script_that_ends_early_because_its_slot_moves_may_be_sent_again_and_is_no_mistake() {
    for said in [
        "Script attempted to access a non local key in a cluster node script: 5f0, on @user_script:1.",
        "Error running script (call to f_5f0): @user_script:9: Script attempted to access a non local key in a \
         cluster node",
    ] {
        let error = make_extension_error("ERR".to_owned(), Some(said.to_owned()));
        let error = CallError::Redis(error);
        let others = [error_with_code("TRYAGAIN"), error_with_code("WRONGTYPE")];
        assert!(error.is_interrupted() && error.may_pass() && error.is_of_one_key());
        assert!(!error.is_unavailable() && !others.iter().any(CallError::is_interrupted));
    }
}

#[test]
fn a_slot_without_a_node_is_unavailable_for_its_own_keys_only() {
    let said = |said: &str| {
        let error = make_extension_error("CLUSTERDOWN".to_owned(), Some(said.to_owned()));
        CallError::Redis(error)
    };
    let (slot, cluster) = (said("Hash slot not served"), said("The cluster is down"));
    assert!(slot.is_unavailable() && slot.is_of_one_key());
    assert!(cluster.is_unavailable() && !cluster.is_of_one_key());
}

#[test]
fn an_error_displays_its_own_level_and_its_cause_is_its_source() {
    let said = |error: CallError| (error.to_string(), error.source().is_some());
    let ms = Duration::from_millis(5);
    let no_answer = "no answer from Redis within 5ms".to_owned();
    assert_eq!(said(unavailable()), ("no connection to Redis".into(), true));
    assert_eq!(said(CallError::Timeout(ms)), (no_answer, false));
    assert_eq!(said(broken()), ("Redis failed".into(), true));
}

/// A server's error with this code and text.
fn error_with_text(text: &str) -> CallError {
    let line = format!("-{text}\r\n");
    let value = parse_redis_value(line.as_bytes()).expect("an error is a value");
    let redis::Value::ServerError(error) = value else {
        panic!("{text} is no error");
    };
    CallError::Redis(error.into())
}

#[test]
fn a_server_that_cannot_work_is_unavailable() {
    for code in [
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
    ] {
        let error = error_with_text(&format!("{code} and some text"));
        assert!(error.is_unavailable(), "{error:?}");
    }
    let old = "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: \
               -OOM command not allowed when used memory > 'maxmemory'.";
    assert!(error_with_text(old).is_unavailable());
}

#[test]
fn a_mistake_does_not_make_the_store_unavailable() {
    for text in [
        "NOPERM this user has no permissions",
        "WRONGTYPE Operation against a key",
        "NOAUTH Authentication required.",
        "ERR unknown command",
        "ERR Error running script (call to f_1): @user_script:7: WRONGTYPE Operation -OOM-like",
    ] {
        let error = error_with_text(text);
        assert!(!error.is_unavailable(), "{error:?}");
    }
    let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "a wrong password"));
    assert!(!CallError::Unavailable(wrong.clone()).is_unavailable());
    assert!(!CallError::Redis(wrong).is_unavailable());
}

#[test]
fn silence_makes_the_store_unavailable_and_a_congested_connection_does_not() {
    let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
    assert!(CallError::Unavailable(refused()).is_unavailable());
    assert!(CallError::Timeout(Duration::ZERO).is_unavailable());
    assert!(!CallError::Congested.is_unavailable());
    assert!(CallError::Redis(refused()).is_unavailable());
}

#[test]
fn a_text_with_the_password_is_hidden_and_a_known_text_is_the_same_for_all_passwords() {
    let wrong = ("WRONGPASS", WRONG);
    for secret in ["password", "user", "horse", "WRONGPASS"] {
        assert_eq!(scrubbed(wrong, secret), wrong);
    }
    let needless = "AUTH <password> called without any password configured for the default user.";
    for secret in ["password", "user", "horse"] {
        assert_eq!(scrubbed(("ERR", needless), secret), ("ERR", NEEDLESS));
    }
    let unknown = "unknown command `AUTH`, with args beginning with: `horse`, ";
    assert_eq!(
        scrubbed(("ERR", unknown), "horse"),
        ("ERR", "unknown command `AUTH`")
    );
    for (said, secret) in [
        ("bad 'my horse' or 'my horse'", "my horse"),
        ("sent: password1", "password"),
        ("sent: käse", "ä"),
        ("sent: ''", "'"),
    ] {
        assert_eq!(scrubbed(("ERR", said), secret), ("ERR", ""));
    }
    assert_eq!(
        scrubbed(("ERR", "unknown command 'x'"), "x"),
        ("ERR", "unknown")
    );
    assert_eq!(scrubbed(("ERR", "nothing"), ""), ("ERR", "nothing"));
}

#[test]
fn a_code_with_the_password_or_a_part_of_it_is_hidden() {
    for (answer, secret) in [
        (("horse", ""), "horse"),
        (("horse", "is it"), "horse"),
        (("my", "horse"), "my horse"),
        (("-a", "b c"), "a b"),
    ] {
        assert_eq!(scrubbed(answer, secret), ("ERR", ""));
    }
}

#[test]
fn an_answer_with_the_password_keeps_its_class_when_it_is_hidden() {
    for (code, said, secret) in [
        ("ERR", "DB index is out of range", "range"),
        ("ERR", "SELECT is not allowed in cluster mode", "cluster"),
        ("ERR", "unknown command 'HELLO'", "HELLO"),
        ("ERR", "max number of clients reached", "clients"),
        ("NOPROTO", "unsupported protocol version", "PROTO"),
        (
            "NOPERM",
            "this user has no permissions to run the 'x'",
            "has no",
        ),
        ("LOADING", "Redis is loading the dataset", "dataset"),
    ] {
        let class = |(code, said): (&str, &str)| {
            let said = Some(said.to_owned());
            Class::classify(&make_extension_error(code.to_owned(), said))
        };
        let hidden = scrubbed((code, said), secret);
        assert_ne!(hidden, (code, said), "{secret}");
        assert_eq!(class(hidden), class((code, said)), "{secret}");
    }
}
