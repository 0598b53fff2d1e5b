//! The behaviour of a market is the same wherever its state lives.
//!
//! Promises: P1.

/// Makes two tests of each of these functions: one with a market in memory and one with a market in Redis.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod in_memory {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(&super::Market::start(&[]).await).await;
                }
            )+
        }

        #[cfg(feature = "redis")]
        mod in_redis {
            use testing::redis::RedisServer;

            $(
                #[tokio::test]
                async fn $name() {
                    let server = RedisServer::start();
                    let settings = [("REDIS_URL", &*server.url())];
                    super::$name(&super::Market::start(&settings).await).await;
                }
            )+
        }
    };
}
