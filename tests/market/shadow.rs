//! With `SHADOW=1` the market admits every request, and logs the refusals that it would have made.
//!
//! Promises: P25.

use crate::{
    client::{Client, ENDLESS, streams},
    process::command,
    soon,
};
use std::process::Stdio;
use testing::example;
use tokio::io::{AsyncBufReadExt, BufReader};

async fn refuses_nobody(settings: &[(&str, &str)]) {
    let settings: Vec<_> = [("PORT", "0"), ("SHADOW", "1")]
        .iter()
        .chain(settings)
        .copied()
        .collect();
    let mut command = command(&settings);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut market = command.spawn().expect("the market starts");
    let url = example::address(&mut market).await;
    let ann = Client::http1(&url).with_account("ann");
    let _held = streams(&ann, 5).await;
    let sixth = ann.get(ENDLESS).await;
    assert_eq!(sixth.status(), 200);
    assert_eq!(sixth.header("ratelimit-policy"), "");
    assert_eq!(
        Client::http1(&url)
            .with_account("bob")
            .get("/market")
            .await
            .status(),
        200
    );

    let mut lines = BufReader::new(market.stderr.take().expect("a pipe")).lines();
    let told = soon("it says who", async {
        loop {
            let line = lines.next_line().await.expect("a pipe").expect("it runs");
            if line.starts_with("would") {
                return line;
            }
        }
    });
    let expected = "would refuse ann: concurrency is full with 5";
    assert_eq!(told.await, expected);
}

#[tokio::test]
async fn nobody_is_refused_in_memory() {
    refuses_nobody(&[]).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_over_redis() {
    let server = testing::redis::RedisServer::start();
    refuses_nobody(&[("REDIS_URL", &server.url())]).await;
}
