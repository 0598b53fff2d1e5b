//! How much of a budget is used while streams always wait for it, for estimates of several sizes.
//!
//! Promises: P26.

use super::*;
use testing::saturation::{MEAN_USE, Saturation, Utilisation};

/// Runs streams of 5 to 60 s, while others always wait. Measures for twenty minutes, after a warm-up of ten.
async fn utilisation(estimate: u32) -> Utilisation {
    let saturation = Saturation {
        window: MINUTE,
        estimate,
        warm_up: 10,
        windows: 20,
    };
    saturation.measure(&MemorySemaphore::new()).await
}

#[tokio::test(start_paused = true)]
async fn estimates_of_the_mean_use_fill_the_whole_budget_and_larger_ones_leave_a_part_unused() {
    let mut measured = Vec::new();
    for times in [1, 2, 4] {
        measured.push(utilisation(times * MEAN_USE).await);
    }
    assert!(measured[0].share >= 0.97, "{measured:?}");
    assert!(measured[1].share >= 0.90, "{measured:?}");
    // In means of a stream's use, 1,000 units: a stream reserves 4 and settles 1 of them over 32.5 s, so it has 3.5
    // reserved on average. The next stream needs 4, so 2 are free on average, of 60. So (60 - 2) / 3.5 streams run at a
    // time, and each uses 1 in 32.5 s. The limit is 60 in 60 s.
    let formula = (60.0 - 2.0) / (32.5 * (4.0 - 0.5));
    assert!(
        (measured[2].share / formula - 1.0).abs() <= 0.05,
        "{measured:?}, not {formula}"
    );
    // In no window is more used than one and a half times the limit.
    assert!(
        measured.iter().all(|measured| measured.peak <= 1.5),
        "{measured:?}"
    );
}
