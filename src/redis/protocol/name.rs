//! From a policy and a key to the name of their semaphore in Redis.
//!
//! The mapping is injective for any bytes. The plain characters of a component are written unchanged, and all others
//! percent-encoded. A component that would be long is written as its SHA-256. `:` separates the components and `#`
//! marks a hash. Neither is plain, so no two names are the same.

use crate::semaphore::{Key, Policy, StoredKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use proto::verbs::{decoded, encoded};
use sha2::{Digest, Sha256};
use std::{borrow::Cow, fmt::Write, sync::Arc};

/// The characters that are percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'@')
    .remove(b'+');

/// A component longer than this is hashed, so that clients cannot make keys in Redis long.
const LONGEST: usize = 64;

/// `PREFIX{POLICY:KEY}`, the start of the names of all keys of a semaphore. The braces are a hash tag, which keeps
/// these keys together on a cluster.
pub(in crate::redis) fn semaphore_name(prefix: &str, policy: &Policy, key: &Key) -> Arc<str> {
    let mut name = name_start(prefix, policy);
    push(&mut name, key.as_bytes());
    name.push('}');
    name.into()
}

/// Like `semaphore_name`, for a key that was read back from the server.
pub(in crate::redis) fn stored_name(prefix: &str, policy: &Policy, key: &StoredKey) -> String {
    match key {
        StoredKey::Whole { key } => semaphore_name(prefix, policy, key).to_string(),
        StoredKey::Hashed { hash } => format!("{}#{hash}}}", name_start(prefix, policy)),
    }
}

/// `PREFIX{POLICY:`, the start of the names of all semaphores of a policy.
pub(in crate::redis) fn name_start(prefix: &str, policy: &Policy) -> String {
    let mut name = String::with_capacity(prefix.len() + policy.as_str().len() + 32);
    name.push_str(prefix);
    name.push('{');
    push(&mut name, policy.as_str().as_bytes());
    name.push(':');
    name
}

/// The target of a limit, as text: `POLICY:KEY` as in the braces of a semaphore's name, or `POLICY` alone.
pub(super) fn limit_target(policy: &Policy, key: Option<&Key>) -> String {
    let mut target = String::new();
    push(&mut target, policy.as_str().as_bytes());
    if let Some(key) = key {
        target.push(':');
        push(&mut target, key.as_bytes());
    }
    target
}

/// Parses the target of a limit. Returns `None` if the text is not one of ours.
pub(super) fn read_limit_target(target: &str) -> Option<(Policy, Option<StoredKey>)> {
    let (policy, key) = match target.split_once(':') {
        Some((policy, key)) => (policy, Some(read_component(key)?)),
        None => (target, None),
    };
    let policy = match read_component(policy)? {
        StoredKey::Whole { key } => Policy::from(str::from_utf8(key.as_bytes()).ok()?),
        StoredKey::Hashed { .. } => Policy::from(policy),
    };
    Some((policy, key))
}

/// Parses the key of a semaphore from the rest of its name after [`name_start`]. Returns `None` if the name is not one
/// of ours.
pub(in crate::redis) fn key_of(name: &str) -> Option<StoredKey> {
    // The name of a budget ends with its window.
    let (key, window) = name.rsplit_once('}')?;
    let is_digit = |byte: u8| byte.is_ascii_digit();
    read_component(key).filter(|_| window.bytes().all(is_digit))
}

/// Parses a component. Returns `None` if it is not one of ours.
fn read_component(component: &str) -> Option<StoredKey> {
    if let Some(hash) = component.strip_prefix('#') {
        let is_hex = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        return is_hex.then(|| StoredKey::hashed(hash));
    }
    let key: Vec<u8> = percent_decode_str(component).collect();
    let mut encoded_again = String::new();
    push(&mut encoded_again, &key);
    (encoded_again == component).then(|| StoredKey::whole(key))
}

/// The start of the name of a flow that is written as its hash. No other name starts like this.
const HASHED: &str = "~-";

/// The name of a flow in ids.
pub(in crate::redis) fn flow_name(flow: &Key) -> Cow<'_, str> {
    let flow = flow.as_bytes();
    if flow.len() <= LONGEST {
        let name = encoded(flow);
        if name.len() <= LONGEST {
            return name;
        }
    }
    let mut name = HASHED.to_owned();
    push_hash(&mut name, flow);
    name.into()
}

/// The flow with this name in ids.
pub(in crate::redis) fn flow_of(name: &str) -> StoredKey {
    if let Some(hash) = name.strip_prefix(HASHED) {
        return StoredKey::hashed(hash);
    }
    StoredKey::whole(decoded(name))
}

/// Appends a component: encoded, or as its hash if that would be long.
fn push(name: &mut String, component: &[u8]) {
    let start = name.len();
    // Encoding makes no component shorter.
    if component.len() <= LONGEST {
        name.extend(percent_encode(component, ENCODED));
        if name.len() - start <= LONGEST {
            return;
        }
        name.truncate(start);
    }
    name.push('#');
    push_hash(name, component);
}

fn push_hash(name: &mut String, component: &[u8]) {
    for byte in Sha256::digest(component) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_for(key: &[u8]) -> String {
        semaphore_name("p:", &Policy::DEFAULT, &key.into()).to_string()
    }

    #[test]
    fn short_and_plain_accounts_stay_readable() {
        assert_eq!(name_for(b"account-42"), "p:{concurrency:account-42}");
    }

    #[test]
    fn braces_and_separators_cannot_break_out() {
        assert_eq!(name_for(b"}a:held{#"), "p:{concurrency:%7Da%3Aheld%7B%23}");
    }

    #[test]
    fn a_name_leads_back_to_its_key() {
        let start = name_start("p:", &Policy::DEFAULT);
        for key in [
            &b"a"[..],
            b"}a:held{#",
            b"%41",
            b"\xff\0",
            "\u{fc} ".as_bytes(),
        ] {
            let name = name_for(key);
            let rest = name.strip_prefix(&start).expect("it begins so");
            assert_eq!(key_of(rest), Some(StoredKey::whole(key)));
        }
        let long = name_for(&[b'a'; 100]);
        let hashed = key_of(long.strip_prefix(&start).expect("it begins so"));
        assert!(matches!(hashed, Some(StoredKey::Hashed { hash }) if long.contains(&hash)));
        for foreign in ["a", "%7da}", "a b}", "#12}", "%}", "a}b}"] {
            assert_eq!(key_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_name_of_a_flow_leads_back_to_it_unless_it_is_long() {
        for flow in [
            &b"ann"[..],
            b"~_1_b",
            b"-",
            b"/",
            b"a.b:c",
            b"\xff\0",
            b"~-0f",
        ] {
            let flow = Key::from(flow);
            let name = flow_name(&flow);
            assert!(
                !name.contains("~_") && !name.contains(['.', ':', '%']),
                "{name}"
            );
            assert_eq!(flow_of(&name), StoredKey::whole(flow.clone()));
        }
        let long = Key::from("a".repeat(65));
        let name = flow_name(&long);
        assert_eq!(name.len(), HASHED.len() + 64);
        assert!(matches!(flow_of(&name), StoredKey::Hashed { hash } if name.ends_with(&hash)));
    }

    #[test]
    fn a_long_key_has_a_short_name() {
        // `#` and the 64 digits of a hash.
        assert_eq!(
            name_for(&[b'a'; 65_536]).len(),
            "p:{concurrency:}".len() + 65
        );
        assert_ne!(name_for(&[b'a'; 65_536]), name_for(&[b'a'; 65_537]));
    }

    #[test]
    fn a_key_is_written_up_to_64_characters_whatever_the_prefix() {
        let prefix = "p".repeat(100);
        for (key, is_written) in [(&b"a".repeat(64), true), (&b"a".repeat(65), false)] {
            let name = semaphore_name(&prefix, &Policy::DEFAULT, &key[..].into());
            assert_eq!(!name.contains('#'), is_written, "{name}");
        }
        // A brace takes three characters, so 21 of them take 63.
        let [written, hashed] = [21, 22].map(|count| name_for(&b"{".repeat(count)));
        assert!(!written.contains('#') && hashed.contains('#'));
    }

    #[test]
    fn a_key_that_spells_the_hash_of_another_is_distinct() {
        let long = [b'a'; 100];
        let name_of_long = name_for(&long);
        let spelled = name_of_long.split([':', '}']).nth(2).map(str::as_bytes);
        assert_ne!(name_for(spelled.unwrap()), name_of_long);
    }
}
