//! The limits that operators have set. `limits.lua` sets them, and processes read them with `presence.lua`.

use super::name::{limit_target, read_limit_target};
use crate::{
    redis::error::CallError,
    semaphore::{Key, LimitInfo, Policy},
};
use proto::verbs::{Owner, decoded};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::time::{Duration, UNIX_EPOCH};

/// The target and the note of a limit, as [`Query::SetLimit`](proto::verbs::Query::SetLimit) takes them.
pub(in crate::redis) fn limit_target_and_note(
    policy: &Policy,
    key: Option<&Key>,
    note: &str,
) -> [String; 2] {
    let note = LimitInfo::note_of(note).unwrap_or_default();
    [limit_target(policy, key), note]
}

/// The key of the limits, and the command that reads those of a semaphore and of its policy.
pub(in crate::redis) fn limit_command(owner: &Owner, name: &str) -> (String, Cmd) {
    let target = name.split_once('{').map_or("", |(_, rest)| rest);
    let target = target.split_once('}').map_or(target, |(target, _)| target);
    let policy = target.split_once(':').map_or(target, |(policy, _)| policy);
    let (key, mut command) = (owner.limits_key(), cmd("HMGET"));
    command.arg(&key).arg(target).arg(policy);
    (key, command)
}

/// Reads the reply to [`limit_command`]. The limit of a key overrides that of its policy.
pub(in crate::redis) fn read_limit(reply: Value) -> Result<Option<u32>, CallError> {
    let set: [Option<String>; 2] = from_redis_value(reply).map_err(|_| CallError::Reply)?;
    let limit = |value: String| value.split(' ').next()?.parse().ok();
    Ok(set.into_iter().flatten().find_map(limit))
}

/// A field of the hash of limits, and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// Reads all limits. Malformed fields are skipped.
pub(in crate::redis) fn read_limits(reply: Value) -> Result<Vec<LimitInfo>, CallError> {
    // The first item is the time of the server's clock.
    let (_, all): (u64, Vec<Pair>) = from_redis_value(reply).map_err(|_| CallError::Reply)?;
    let limit =
        |(target, value): &Pair| read(str::from_utf8(target).ok()?, str::from_utf8(value).ok()?);
    Ok(all.iter().filter_map(limit).collect())
}

/// Parses a limit from its field: its target, and `LIMIT SINCE NOTE`.
fn read(target: &str, value: &str) -> Option<LimitInfo> {
    let (policy, key) = read_limit_target(target)?;
    let mut parts = value.split(' ');
    let (limit, since) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let since = UNIX_EPOCH.checked_add(Duration::from_millis(since))?;
    let mut info = LimitInfo::new(policy, key, limit, since);
    let note = parts.next().map(decoded).unwrap_or_default();
    info.note = LimitInfo::note_of(&String::from_utf8_lossy(&note));
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::StoredKey;
    use proto::verbs::encoded;

    #[test]
    fn a_limit_is_read_back() {
        let long = "k".repeat(100);
        for (policy, key) in [
            ("concurrency", None),
            ("concurrency", Some("ann")),
            ("a:b*", Some("}*version ")),
            ("export", Some(&*long)),
        ] {
            let (policy, key) = (Policy::from(policy), key.map(Key::from));
            let target = limit_target(&policy, key.as_ref());
            let note = "ann: 5 %\n\u{fc}~";
            let value = format!("3 1795345200123 {}", encoded(note.as_bytes()));
            let info = read(&target, &value).expect("it is one of ours");
            assert_eq!((info.policy, info.limit), (policy, 3));
            match info.key {
                Some(StoredKey::Hashed { .. }) => assert_eq!(key, Some(Key::from(&*long))),
                whole => assert_eq!(whole, key.map(StoredKey::whole)),
            }
            assert_eq!(info.note.as_deref(), Some(note));
        }
    }

    #[test]
    fn a_malformed_limit_is_left_out() {
        for (target, value) in [
            ("*version", "17"),
            ("a", ""),
            ("a", "x 1 "),
            ("a", "1"),
            ("a b", "1 1 "),
            ("a:b:c", "1 1 "),
            ("a", "-1 1 "),
            ("a", "99999999999 1 "),
        ] {
            assert_eq!(read(target, value), None, "{target} {value}");
        }
        assert!(read("a", "1 1").is_some_and(|info| info.note.is_none()));
    }
}
