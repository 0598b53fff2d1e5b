//! distributed-lock, driven by a separate program so that the crate does not depend on it.

use std::path::{Path, PathBuf};
use testing::bench::open_loop::{Offered, Rate};
use tokio::process::Command;

/// The path at which `benches/peers/run.sh` builds the program.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/rust/release/goodput")
}

pub(crate) fn is_there() -> bool {
    program().exists()
}

/// Lets the program make claims at this rate.
pub(crate) async fn offer(url: &str, rate: Rate) -> Offered {
    let millis = [rate.warm, rate.span].map(|time| time.as_millis().to_string());
    let output = Command::new(program())
        .args([url, &rate.per_second.to_string()])
        .args(millis)
        .output()
        .await
        .expect("the program starts");
    let figures = String::from_utf8(output.stdout).expect("it writes text");
    let figures: Vec<f64> = figures
        .split_whitespace()
        .filter_map(|figure| figure.parse().ok())
        .collect();
    let [rate, good, mean_ms] = figures[..] else {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    };
    let mean_ms = (good > 0.0).then_some(mean_ms);
    Offered {
        rate,
        good,
        mean_ms,
    }
}
