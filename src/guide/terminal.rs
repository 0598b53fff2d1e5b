//! Operate from a terminal: the command `semaphore` shows who holds what in Redis, frees it, and sets limits for the
//! whole fleet.
//!
//! ```text
//! ACL SETUSER look on >PASSWORD resetchannels ~semaphore:* +eval +time +get +hget +hgetall +hmget +scan +zcount +zrange +zscan
//! ```
//!
//! ```text
//! ACL SETUSER act on >PASSWORD resetchannels ~semaphore:* &semaphore:* +eval +time +get +hget +hgetall +hmget +scan +zcount +zrange +zscan +exists +hdel +hexists +hlen +hset +incr +pexpire +pttl +publish +set +zadd +zcard +zrangebyscore +zrem +zremrangebyscore +zscore
//! ```
