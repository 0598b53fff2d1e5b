//! Faults that no other test brings about. `TESTING.md` lists all, each with its test.

mod broken_streams;
mod cancelled;
mod crowd;
mod dropped_releases;
mod flushed_scripts;
mod lagging_replica;
mod late_refreshes;
mod lost_keys;
mod lost_replies;
mod odd_answers;
mod server;
