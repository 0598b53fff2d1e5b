use super::*;
use redis::parse_redis_value;
use std::io;

fn unavailable() -> Error {
    Error::Unavailable(io::Error::from(io::ErrorKind::ConnectionRefused).into())
}

fn broken() -> Error {
    Error::Redis(io::Error::from(io::ErrorKind::BrokenPipe).into())
}

/// An error that a server has answered with.
fn answered(code: &str) -> Error {
    let reply = format!("-{code} as a server says it\r\n");
    let value = parse_redis_value(reply.as_bytes()).expect("an answer");
    let error = value.extract_error().expect_err("an error");
    assert_eq!(error.code(), Some(code));
    Error::Redis(error)
}

fn are(errors: &[Error], is_it: impl Fn(&Error) -> bool) -> Vec<bool> {
    errors.iter().map(is_it).collect()
}

#[test]
fn a_connection_that_broke_is_told_from_one_that_was_not_made() {
    let errors = [
        unavailable(),
        Error::Congested,
        Error::Timeout(Duration::ZERO),
        Error::Late(1),
        broken(),
        answered("ERR"),
        Error::Reply,
    ];
    let [yes, no] = [true, false];
    let disconnect = are(&errors, Error::is_disconnect);
    assert_eq!(disconnect, [no, no, no, no, yes, no, no]);
}

#[test]
fn a_server_s_error_is_told_by_its_code() {
    let codes = ["READONLY", "CROSSSLOT", "NOSCRIPT", "WRONGTYPE", "ERR"];
    let errors = codes.map(answered);
    let [yes, no] = [true, false];
    assert_eq!(are(&errors, Error::is_read_only), [yes, no, no, no, no]);
    assert_eq!(are(&errors, Error::is_no_script), [no, no, yes, no, no]);
}

#[test]
fn an_error_says_its_own_level_and_its_cause_is_its_source() {
    let said = |error: Error| (error.to_string(), error.source().is_some());
    let ms = Duration::from_millis(5);
    let no_answer = "no answer from Redis within 5ms".to_owned();
    assert_eq!(said(unavailable()), ("no connection to Redis".into(), true));
    assert_eq!(said(Error::Timeout(ms)), (no_answer, false));
    assert_eq!(said(broken()), ("Redis failed".into(), true));
}
