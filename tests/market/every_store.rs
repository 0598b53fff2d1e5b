//! What a market does, it does wherever its state lives.

/// Makes two tests of each of these functions: with a market in memory, and with one in Redis.
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
