//! Results for programs: one JSON value per line. The guide's chapter "Operate from a terminal" documents each.

use crate::{
    look::PolicyKey,
    tally::{Row, Tally},
};
use serde_json::{Map, Value, json};
use std::{
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};
use tower_semaphore::{
    Key,
    semaphore::{KeyCounts, LimitInfo, PauseInfo, Process, StoredKey},
};

/// The field that names a key: `key` for text, `key_hex` for bytes that are not UTF-8, or `hash` for a long key.
fn key_field(key: &StoredKey) -> Map<String, Value> {
    let (name, value) = match key {
        StoredKey::Whole { key, .. } => whole(key),
        StoredKey::Hashed { hash, .. } => ("hash", hash.clone()),
        other => ("key", format!("{other:?}")),
    };
    Map::from_iter([(name.to_owned(), value.into())])
}

fn whole(key: &Key) -> (&'static str, String) {
    match str::from_utf8(key.as_bytes()) {
        Ok(text) => ("key", text.to_owned()),
        Err(_) => ("key_hex", hex(key.as_bytes())),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The field that names a key, or `"key": null` for all keys.
fn key_field_or_null(key: Option<&StoredKey>) -> Map<String, Value> {
    let all = || Map::from_iter([("key".to_owned(), Value::Null)]);
    key.map_or_else(all, key_field)
}

fn merged(mut object: Map<String, Value>, rest: Value) -> Value {
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Value::Object(object)
}

pub(crate) fn counts(counts: &KeyCounts) -> Value {
    let KeyCounts { units, waiting, .. } = counts;
    let pause = pause(counts.pause.as_ref());
    merged(
        key_field(&counts.key),
        json!({"units": units, "waiting": waiting, "pause": pause}),
    )
}

fn pause(pause: Option<&PauseInfo>) -> Value {
    pause.map_or(Value::Null, |pause| {
        let (since, until) = (millis(pause.since), millis(pause.until));
        json!({"since": since, "until": until, "note": pause.note})
    })
}

/// Unix time, in milliseconds.
fn millis(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_millis() as u64
}

/// The pause of a key after `pause` or `resume`.
pub(crate) fn paused(target: &PolicyKey, info: Option<&PauseInfo>) -> Value {
    merged(
        key_field(&StoredKey::whole(target.key.clone())),
        json!({"policy": target.policy.as_str(), "pause": pause(info)}),
    )
}

/// The counts and rows that `top` shows.
pub(crate) fn tally(tally: &Tally) -> Value {
    let row = |(counted, limit): &Row| {
        let mut row = counts(counted);
        row["limit"] = json!(limit);
        row
    };
    let rows = |rows: &[Row]| rows.iter().map(row).collect::<Vec<_>>();
    json!({
        "keys": tally.keys,
        "units": tally.units,
        "waiting": tally.waiting,
        "paused": tally.paused,
        "fullest": rows(&tally.fullest),
        "longest": rows(&tally.longest_queues),
    })
}

pub(crate) fn process(process: &Process) -> Value {
    json!({
        "id": process.id,
        "host": process.host,
        "pid": process.pid,
        "name": process.name,
        "version": process.version,
    })
}

pub(crate) fn limit(info: &LimitInfo) -> Value {
    merged(
        key_field_or_null(info.key.as_ref()),
        json!({
            "policy": info.policy.as_str(),
            "limit": info.limit,
            "since": millis(info.since),
            "note": info.note,
        }),
    )
}

/// The limit that `set-limit` has set.
pub(crate) fn set(policy: &str, key: Option<&Key>, limit: Option<u32>) -> Value {
    let key = key.map(|key| StoredKey::whole(key.clone()));
    merged(
        key_field_or_null(key.as_ref()),
        json!({"policy": policy, "limit": limit}),
    )
}
