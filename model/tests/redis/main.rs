//! The stand-in against a real server, and what the crate really sends.

mod calls;
mod commands;
mod heartbeat;
mod shipped;

use testing::resp::Reply;
use tower_semaphore_model::stand_in::Reply as Expected;

/// A reply of the real server, as the stand-in gives it.
fn as_in_model(reply: &Reply) -> Result<Expected, String> {
    Ok(match reply {
        Reply::Nil => Expected::Nil,
        Reply::Int(number) => Expected::Int(*number),
        Reply::Bulk(text) => Expected::Text(String::from_utf8_lossy(text).into_owned()),
        Reply::Simple(_) => Expected::Status("OK"),
        Reply::Error(error) => return Err(error.clone()),
        Reply::Array(items) => {
            Expected::List(items.iter().map(as_in_model).collect::<Result<_, _>>()?)
        }
    })
}
