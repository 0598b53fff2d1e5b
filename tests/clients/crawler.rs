//! The crawler, run as separate processes against a site with three hosts.
//!
//! Promises: P17.

use std::{
    process::{Output, Stdio},
    time::Duration,
};
use testing::example;
use tokio::{process::Child, time::timeout};

const BOUND: Duration = Duration::from_secs(60);
/// Each of the three hosts has 121 pages.
const PAGES: usize = 3 * 121;

/// Runs a crawler to its end.
async fn run(settings: &[(&str, &str)]) -> Output {
    let output = timeout(BOUND, example::command("crawler", settings).output()).await;
    output.expect("it ends in time").expect("it starts")
}

/// Parses the output: the number of pages that a crawler has read, and the largest number of simultaneous requests that
/// a host has seen. The output has the line `363 pages in 9.5 s` and, for each host, `HOST has seen 3 requests at a
/// time, and 2 in a pause`.
fn report(output: &Output) -> (usize, usize) {
    let text = String::from_utf8_lossy(&output.stdout);
    let pages = text.lines().find_map(|line| number(line, 0, "pages"));
    let pages = pages.unwrap_or_else(|| panic!("it gave up: {output:?}"));
    let seen = text.lines().filter_map(|line| number(line, 3, "requests"));
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen.len(), 3, "a host is missing: {text}");
    (pages, seen.into_iter().max().unwrap_or_default())
}

/// The largest number of requests that a host has received in a pause that its 429 began. Two may have been in flight
/// already.
fn count_in_pauses(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter_map(|line| number(line, 9, "in"));
    counts.max().expect("hosts report them")
}

/// The number at word `position` of a text, if `unit` follows it.
fn number(text: &str, position: usize, unit: &str) -> Option<usize> {
    let mut words = text.split(' ').skip(position);
    let number = words.next()?.parse().ok()?;
    (words.next() == Some(unit)).then_some(number)
}

/// A site that runs until this value is dropped.
struct Site {
    url: String,
    _process: Child,
}

impl Site {
    async fn start() -> Self {
        let mut command = example::command("crawler", &[]);
        command.arg("serve").stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let url = example::address(&mut process).await;
        Self {
            url: format!("{url}/"),
            _process: process,
        }
    }
}

#[tokio::test]
async fn a_crawler_reads_every_page_with_three_requests_at_a_time_at_each_host() {
    let output = run(&[]).await;
    assert_eq!(report(&output), (PAGES, 3));
    assert!(count_in_pauses(&output) <= 2, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn a_crawler_whose_limit_is_above_that_of_the_hosts_fails() {
    let output = run(&[("LIMIT", "5")]).await;
    let (pages, seen) = report(&output);
    assert_eq!(pages, PAGES);
    assert!(seen > 3, "the hosts have seen no more than they allow");
    assert!(!output.status.success());
}

#[tokio::test]
async fn two_crawlers_that_share_nothing_exceed_the_limit_together() {
    let site = Site::start().await;
    let settings = [("SITE", site.url.as_str())];
    let (one, other) = tokio::join!(run(&settings), run(&settings));
    assert_eq!((report(&one).0, report(&other).0), (PAGES, PAGES));
    assert!(!(one.status.success() && other.status.success()));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn two_crawlers_on_one_redis_share_the_limit_and_the_pauses_of_each_host() {
    let server = testing::redis::RedisServer::start();
    let (site, redis) = (Site::start().await, server.url());
    let settings = [("SITE", site.url.as_str()), ("REDIS_URL", redis.as_str())];
    let (one, other) = tokio::join!(run(&settings), run(&settings));
    for output in [&one, &other] {
        let (pages, seen) = report(output);
        assert_eq!(pages, PAGES);
        assert!(seen <= 3, "{seen}");
        assert!(count_in_pauses(output) <= 2, "{output:?}");
        assert!(output.status.success(), "{output:?}");
    }
    let mut raw = testing::resp::Raw::connect(server.port()).await;
    assert!(raw.keys("*:held").await.is_empty(), "a permit was left");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_crawler_goes_on_after_its_redis_was_silent() {
    let server = testing::redis::RedisServer::start();
    let mut raw = testing::resp::Raw::connect(server.port()).await;
    let redis = server.url();
    let settings = [("REDIS_URL", redis.as_str())];
    let crawler = run(&settings);
    let silence = async {
        testing::wait::eventually("it crawls", BOUND, async || {
            raw.keys("*:queue").await.len() == 3
        })
        .await;
        server.stop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.cont();
    };
    let (output, ()) = tokio::join!(crawler, silence);
    assert_eq!(report(&output), (PAGES, 3));
    assert!(output.status.success(), "{output:?}");
}
