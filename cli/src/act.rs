//! Commands that change something.

use crate::{
    arguments::{KeyArguments, Note, SetLimitArguments},
    failure::Failure,
    json, length,
    look::PolicyKey,
    output::Output,
    table::{Ids, left},
    text::{key_of, shown, whole},
};
use futures_util::StreamExt;
use serde_json::json;
use std::{
    ffi::OsStr,
    io::{self, BufRead, IsTerminal, Write},
};
use tokio::task::spawn_blocking;
use tower_semaphore::{Key, Operate, Policy, RedisSemaphore, semaphore::StoredKey};

/// Ends a permit or a wait.
pub(crate) async fn revoke(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    id: &str,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    let ids = Ids::from_usage(&target.usage(store).await?);
    let meant: Vec<_> = ids.named(id).collect();
    match meant[..] {
        [id] => revoke_ids(store, &target, &ids, &[id.to_owned()], output).await,
        [] => Err(Failure::Nothing(format!(
            "no permit is called {}",
            shown(id)
        ))),
        _ => Err(Failure::Usage(format!(
            "{} names several permits",
            shown(id)
        ))),
    }
}

/// Ends all permits of a key.
pub(crate) async fn revoke_key(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    is_sure: bool,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    let usage = target.usage(store).await?;
    let held: Vec<_> = usage.held.iter().map(|info| info.id.clone()).collect();
    if held.is_empty() {
        return Err(Failure::nothing("nobody holds a permit of this key"));
    }
    if !is_sure {
        let count = held.len();
        confirm(format!("End all permits of {target}: {count}?")).await?;
    }
    let ids = Ids::from_usage(&usage);
    revoke_ids(store, &target, &ids, &held, output).await
}

/// Revokes the permits whose ids are `chosen`. `ids` has all ids of the key, to shorten the printed ones.
async fn revoke_ids(
    store: &RedisSemaphore,
    target: &PolicyKey,
    ids: &Ids,
    chosen: &[String],
    output: Output,
) -> Result<(), Failure> {
    let (mut revoked, mut failed) = (Vec::new(), None);
    for id in chosen {
        match store.revoke(&target.policy, &target.key, id).await {
            Ok(true) => revoked.push(id),
            Ok(false) => {}
            Err(error) => {
                failed = Some(Failure::store(&error));
                break;
            }
        }
    }
    // Prints the revoked ids first, even if a later revocation has failed.
    match (revoked.is_empty(), output.is_json) {
        (true, _) => return Err(failed.unwrap_or_else(|| Failure::nothing("it had ended before"))),
        (false, true) => output.json(&json!({"revoked": revoked}))?,
        (false, false) => {
            let short = revoked.iter().map(|id| shown(ids.short(id)));
            let lines = short.map(|id| format!("revoked {id}\n"));
            output.text(&lines.collect::<String>())?;
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Asks for confirmation. Fails if standard input is not a terminal.
async fn confirm(question: String) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        let unasked = "nobody can be asked here: add --yes to end all permits of the key";
        return Err(Failure::Usage(unasked.to_owned()));
    }
    // On a blocking thread, so that a signal can end the command while it waits for the answer.
    let answer = spawn_blocking(move || ask(&question)).await;
    // The join fails only if the runtime shuts down, or if `eprint!` panics because standard error is closed.
    let answer = answer.map_err(|_| Failure::Interrupted)??;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::nothing("nothing was ended")),
    }
}

fn ask(question: &str) -> Result<String, Failure> {
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

/// Sets a limit, or removes it.
pub(crate) async fn set_limit(
    store: &RedisSemaphore,
    policy: &str,
    set: &SetLimitArguments,
    output: Output,
) -> Result<(), Failure> {
    // A single argument is the limit, of all keys.
    let (key, limit) = match &set.limit_after_key {
        Some(limit) => (Some(key_of(&set.key_or_limit)), limit),
        None => (None, &set.key_or_limit),
    };
    let limit = limit_of(limit)?;
    check_settable(policy, key.as_ref())?;
    let typed_policy = Policy::from(policy);
    if limit.is_none() {
        check_is_set(store, &typed_policy, key.as_ref()).await?;
    }
    let done = store
        .set_limit(&typed_policy, key.as_ref(), limit, &set.note.text)
        .await;
    done.map_err(|error| Failure::store(&error))?;
    if output.is_json {
        return output.json(&json::set(policy, key.as_ref(), limit));
    }
    let shown_key = key.as_ref().map_or("all keys".to_owned(), whole);
    let shown_limit = limit.map_or("what claims say".to_owned(), |limit| limit.to_string());
    output.text(&format!(
        "{} {shown_key}: the limit is {shown_limit}",
        shown(policy)
    ))
}

/// Fails if no such limit is set. A store keeps only the hash of a key that is long when it is percent-encoded, so for
/// such a key any listed hash of the policy counts.
async fn check_is_set(
    store: &RedisSemaphore,
    policy: &Policy,
    key: Option<&Key>,
) -> Result<(), Failure> {
    let mut limits = store.limits();
    while let Some(limit) = limits.next().await {
        let limit = limit.map_err(|error| Failure::store(&error))?;
        let is_meant = match (&limit.key, key) {
            (None, None) => true,
            (Some(StoredKey::Whole { key: listed, .. }), Some(key)) => key == listed,
            (Some(StoredKey::Hashed { hash, .. }), Some(key)) => {
                if key.as_bytes().strip_prefix(b"#") == Some(hash.as_bytes()) {
                    let wrong = "KEY: this is the hash of a long key: give the whole key";
                    return Err(Failure::Usage(wrong.to_owned()));
                }
                // A store hashes only keys that are longer than their hashes.
                encoded_length(key) > hash.len()
            }
            _ => false,
        };
        if is_meant && limit.policy == *policy {
            return Ok(());
        }
    }
    Err(Failure::nothing("no such limit is set"))
}

/// Returns the length of a percent-encoded key. The plain characters are those that the docs of [`StoredKey`] list.
fn encoded_length(key: &Key) -> usize {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
    let lengths = key
        .as_bytes()
        .iter()
        .map(|&byte| if is_plain(byte) { 1 } else { 3 });
    lengths.sum()
}

/// Fails for a policy or key whose limit no store can set.
fn check_settable(policy: &str, key: Option<&Key>) -> Result<(), Failure> {
    match policy {
        "lock" => Err(Failure::Usage(
            "POLICY: a lock's limit cannot be set".to_owned(),
        )),
        _ => key.map_or(Ok(()), check_key),
    }
}

fn check_key(key: &Key) -> Result<(), Failure> {
    match key.is_empty() {
        true => Err(Failure::Usage("KEY: it is empty".to_owned())),
        false => Ok(()),
    }
}

/// Pauses a key, and prints when the pause that is in force ends.
pub(crate) async fn pause(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    time: &OsStr,
    note: &Note,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    check_key(&target.key)?;
    let wrong = |reason| Failure::Usage(format!("TIME: {reason}"));
    let time = length::parse_pause(&time.to_string_lossy()).map_err(wrong)?;
    let paused = store.pause(&target.policy, &target.key, time, &note.text);
    paused.await.map_err(|error| Failure::store(&error))?;
    // A pause that ends later may have been in force.
    let usage = target.usage(store).await?;
    if output.is_json {
        return output.json(&json::paused(&target, usage.pause.as_ref()));
    }
    let ends = usage.pause.map_or("has ended".to_owned(), |pause| {
        format!("ends in {}", left(usage.now, pause.until))
    });
    output.text(&format!("{target}: the pause {ends}"))
}

/// Ends the pause of a key.
pub(crate) async fn resume(
    store: &RedisSemaphore,
    arguments: &KeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let target = PolicyKey::new(arguments);
    check_key(&target.key)?;
    let resumed = store.resume(&target.policy, &target.key).await;
    match resumed.map_err(|error| Failure::store(&error))? {
        false => Err(Failure::nothing("the key is not paused")),
        true if output.is_json => output.json(&json::paused(&target, None)),
        true => output.text(&format!("{target}: the pause has ended")),
    }
}

fn limit_of(text: &OsStr) -> Result<Option<u32>, Failure> {
    let text = text.to_string_lossy();
    if text == "default" {
        return Ok(None);
    }
    let wrong = |_| format!("LIMIT: {} is neither a number nor `default`", shown(&text));
    text.parse()
        .map(Some)
        .map_err(wrong)
        .map_err(Failure::Usage)
}
