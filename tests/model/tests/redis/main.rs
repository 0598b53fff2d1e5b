//! Compares the stand-in with a real server, and the model's scripts with the scripts that the crate sends.

mod calls;
mod commands;
mod late;
mod shipped;

use testing::resp::{Raw, Reply};
use tower_semaphore_model::{
    scripts::{Scripts, Verb},
    stand_in::Reply as Expected,
};

/// Runs a shipped script.
async fn eval(raw: &mut Raw, verb: Verb, keys: &[&str], args: &[&str]) -> Reply {
    let scripts: Vec<_> = Scripts::shipped().all().collect();
    let count = keys.len().to_string();
    let mut command = vec!["EVAL", &scripts[verb as usize], &count];
    command.extend(keys.iter().chain(args));
    raw.cmd(&command).await
}

/// Converts a reply of the real server to a reply of the stand-in.
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
