//! What a server says of itself.

use super::answer::ANSWER;
use crate::redis::{
    error::Error,
    transport::{
        connection::{Connection, timed_out},
        contract::Replies,
    },
};
use redis::{RedisError, Value, cmd};
use tokio::time::timeout;

/// What a server says of itself.
pub(super) struct ServerInfo {
    pub(super) is_primary: bool,
    /// Another one after each start; `None` if the server does not tell it to this user.
    pub(super) run_id: Option<String>,
}

impl ServerInfo {
    pub(super) async fn of(connection: &Connection) -> Result<Self, RedisError> {
        let commands = vec![cmd("ROLE"), cmd("INFO").arg("server").take()];
        let replies = timeout(ANSWER, connection.call(commands)).await;
        Self::read(replies.map_err(|_| timed_out())?)
    }

    fn read(replies: Replies) -> Result<Self, RedisError> {
        let mut replies = replies.into_iter();
        let role = replies.next().ok_or_else(timed_out)?;
        let role = role.map_err(Error::into_cause)?;
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
