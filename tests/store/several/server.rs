//! A store in Redis, and what Redis itself says of it.

use std::time::Duration;
use testing::{levels::POLICIES, redis::RedisServer, resp::Raw};
use tower_semaphore::RedisSemaphore;

/// A store under which a busy machine is no failure.
pub(crate) async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    builder.connect(server.url()).await.expect("it connects")
}

/// How many members the sets of each limit have.
pub(crate) async fn members(raw: &mut Raw, set: &str) -> [usize; 3] {
    let mut members = [0; 3];
    for (count, policy) in members.iter_mut().zip(POLICIES) {
        for key in raw.keys(format!("semaphore:{{{policy}:*}}:{set}")).await {
            *count += raw.zcard(key).await;
        }
    }
    members
}
