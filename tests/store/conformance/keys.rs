//! Keys are distinct, whatever their bytes. `mod.rs` lists these facts.

use super::{Store, claim, fill};
use std::collections::HashSet;
use tower_semaphore::Semaphore;

pub(crate) async fn another_key_is_untouched(store: Store) {
    let _permits = fill(&store, &claim("a", 2)).await;
    assert_eq!(fill(&store, &claim("b", 2)).await.len(), 2);
}

pub(crate) async fn another_policy_is_another_semaphore(store: Store) {
    let _permits = fill(&store, &claim("a", 2)).await;
    let other = claim("a", 2).with_policy("uploads");
    assert_eq!(fill(&store, &other).await.len(), 2);
    let same = claim("a", 2).with_policy("concurrency");
    assert_eq!(fill(&store, &same).await.len(), 0);
}

/// Random keys of 1 byte to 64 KiB, made of bytes that often break names.
fn odd_keys(count: usize) -> HashSet<Vec<u8>> {
    let alphabet = b"{}:#%\0\r\n\xff\xc3a*[]? \"\\-._@+";
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    // Pseudo-random numbers (xorshift).
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut keys = HashSet::new();
    while keys.len() < count {
        let length = 1 + random() % [3, 8, 70, 65_536][random() % 4];
        keys.insert(
            (0..length)
                .map(|_| alphabet[random() % alphabet.len()])
                .collect(),
        );
    }
    keys
}

pub(crate) async fn a_thousand_keys_of_any_bytes_are_distinct(store: Store) {
    let mut permits = Vec::new();
    for key in odd_keys(1_000) {
        let claim = claim(key, 1);
        permits.push(
            store
                .acquire(claim.clone())
                .await
                .expect("every key has a separate limit"),
        );
        assert!(
            store.acquire(claim).await.is_err(),
            "the same bytes are the same key"
        );
    }
}

pub(crate) async fn keys_that_look_like_the_names_of_other_keys_are_distinct(store: Store) {
    let keys = [
        "a",
        "A",
        "}x",
        "a}b",
        "{a}",
        "a:held",
        "*",
        "[a]",
        "redis.call('FLUSHALL')",
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "%61",
    ];
    let hash_of_a = "#ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    let composed = ["\u{e9}", "e\u{301}"];
    let mut permits = Vec::new();
    for key in keys.into_iter().chain([hash_of_a]).chain(composed) {
        let filled = fill(&store, &claim(key, 1)).await;
        assert_eq!(filled.len(), 1, "{key}");
        permits.extend(filled);
    }
}
