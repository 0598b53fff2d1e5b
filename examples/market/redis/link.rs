//! The connection to the server that has the market.

use super::server::Server;
use crate::market::StoreError;
use redis::{FromRedisValue, Pipeline, RedisResult, ScriptInvocation, aio::MultiplexedConnection};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::timeout};

/// The longest time for a call to Redis, including a reconnect.
const BUDGET: Duration = Duration::from_millis(500);

/// A connection that is replaced after a failed call, because another server may have the market then.
pub(super) struct Link {
    server: Arc<Server>,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Link {
    pub(super) async fn open(server: Arc<Server>) -> RedisResult<Self> {
        let link = Self {
            server,
            connection: Mutex::default(),
        };
        link.connection().await?;
        Ok(link)
    }

    /// Reads, over a second connection if necessary: a dead connection is noticed only when a command fails on it.
    pub(super) async fn query<T: FromRedisValue>(&self, read: &Pipeline) -> Result<T, StoreError> {
        self.within(async {
            if let Ok(answer) = read.query_async(&mut self.connection().await?).await {
                return Ok(answer);
            }
            self.connection.lock().await.take();
            read.query_async(&mut self.connection().await?).await
        })
        .await
    }

    /// Runs a script once, over a connection that has just answered. If no answer arrives, the script's outcome is
    /// unknown.
    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        self.query::<()>(redis::pipe().ping().ignore()).await?;
        self.within(async {
            let mut connection = self.connection().await?;
            call.invoke_async(&mut connection).await
        })
        .await
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        // One task connects at a time, and the others wait for it.
        let mut current = self.connection.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        let client = self.server.find().await?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(current.insert(connection).clone())
    }

    /// Waits for an answer for at most [`BUDGET`].
    async fn within<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, StoreError> {
        let error: StoreError = match timeout(BUDGET, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.into(),
            Err(late) => late.into(),
        };
        self.connection.lock().await.take();
        Err(error)
    }
}
