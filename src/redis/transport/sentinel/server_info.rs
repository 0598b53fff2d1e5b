//! What a server says of itself.

use super::answer::ANSWER;
use crate::{
    redis::{
        error::{Error, after},
        transport::connection::{Replies, timed_out, too_late},
    },
    semaphore::timer::timeout_at,
};
use redis::{Cmd, Value, cmd};

/// What a server says of itself.
pub(super) struct ServerInfo {
    pub(super) is_primary: bool,
    /// Another one after each start; `None` if the server does not tell it to this user.
    pub(super) run_id: Option<String>,
}

impl ServerInfo {
    /// What a server is to be asked.
    pub(super) fn commands() -> Vec<Cmd> {
        vec![cmd("ROLE"), cmd("INFO").arg("server").take()]
    }

    /// Reads what it replies to that.
    pub(super) async fn of(replies: impl Future<Output = Replies>) -> Result<Self, Error> {
        let replies = timeout_at(after(ANSWER), replies).await;
        Self::read(replies.map_err(too_late)?)
    }

    fn read(replies: Replies) -> Result<Self, Error> {
        let mut replies = replies.into_iter();
        let role = replies.next().ok_or_else(timed_out)?;
        let role = role.map_err(|error| Error::unconnected(error.into_cause()))?;
        let is_master = |role: &Value| *role == Value::BulkString(b"master".to_vec());
        Ok(Self {
            is_primary: matches!(role, Value::Array(role) if role.first().is_some_and(is_master)),
            run_id: replies.next().and_then(Result::ok).and_then(run_id),
        })
    }
}

fn run_id(info: Value) -> Option<String> {
    let info: String = redis::from_redis_value(info).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(id.trim().to_owned())
}
