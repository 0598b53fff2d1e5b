//! Wrappers of a store in Redis behind the layer.

use crate::layer::wrappers;
use testing::{redis::RedisServer, stores};

macro_rules! in_redis {
    ($($fact:ident)*) => { $(
        #[tokio::test]
        async fn $fact() {
            let server = RedisServer::start();
            wrappers::$fact(stores::redis(&server.url()).await).await;
        }
    )* };
}

in_redis! {
    a_wrapped_store_counts_and_shows_the_limit_in_force
    every_refusal_shows_the_limit_in_force
    a_fault_refuses_until_it_is_over
    a_choice_counts_in_the_store_that_it_chooses
}
