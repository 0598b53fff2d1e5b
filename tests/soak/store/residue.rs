//! What is left in Redis, seen without the library.

use testing::resp::Raw;

/// The sets of a semaphore by the suffixes of their keys: holders, waiters, heartbeats.
const SETS: [&str; 3] = [":held", ":queue", ":alive"];

/// Each set that has members, with how many.
pub(crate) async fn residue(raw: &mut Raw) -> Vec<String> {
    let mut found = Vec::new();
    for set in SETS {
        for key in raw.keys(format!("*{set}")).await {
            let members = raw.zmembers(&key).await.len();
            let name = String::from_utf8_lossy(&key).into_owned();
            found.extend((members > 0).then(|| format!("{members} in {name}")));
        }
    }
    found
}
