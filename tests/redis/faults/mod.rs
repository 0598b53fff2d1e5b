//! Faults of one server and of the connection to it. `TESTING.md` lists them all, each with its test.

mod broken_streams;
mod lost_calls;
mod lost_data;
mod odd_answers;
mod scripts;
mod server;
