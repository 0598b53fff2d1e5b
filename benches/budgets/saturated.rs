//! The share of a budget that streams use while more streams always wait for it, for estimates of several sizes.
//!
//! All times are a tenth of the usual: the window is 6 s instead of a minute, the lease 1 s instead of 10 s, and a
//! stream lasts from 0.5 to 6 s.

use futures_util::future::join_all;
use std::time::Duration;
use testing::{
    bench::{
        run::pick,
        table::{Table, figure},
    },
    saturation::{MEAN_USE, Saturation},
};
use tower_semaphore::RedisSemaphore;

pub(crate) async fn measure(url: &str) {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(1));
    let store = builder.connect(url).await.expect("the server is there");
    let head = ["estimate ÷ mean use", "used share", "peak of a window"];
    let mut table = Table::new("Use of a saturated budget, compared with its limit", &head);
    let estimates = [1, 2, 4];
    let measured = estimates.map(|times| {
        let saturation = Saturation {
            window: Duration::from_secs(6),
            estimate: times * MEAN_USE,
            warm_up: 5,
            windows: pick(5, 30),
        };
        saturation.measure(&store)
    });
    for (times, measured) in estimates.iter().zip(join_all(measured).await) {
        table.row([
            times.to_string(),
            figure(measured.share),
            figure(measured.peak),
        ]);
    }
    println!("{table}");
}
