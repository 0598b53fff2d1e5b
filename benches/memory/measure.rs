//! Runs criterion, and reads its estimates afterwards.

use criterion::{BenchmarkId, Criterion};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};
use testing::bench::{figures::median, run::is_quick};

/// With fewer operations, a sample would measure the clock more than the operations.
const MANY: u64 = 1_000;

/// Criterion, and the folder of its estimates.
pub(crate) struct Bench {
    criterion: Criterion,
    folder: PathBuf,
}

/// Criterion's estimate of the time of one operation, in nanoseconds.
pub(crate) type Estimate = f64;

impl Bench {
    /// The flags are criterion's own, such as `--quick` and a filter.
    pub(crate) fn new() -> Self {
        let folder = folder();
        let criterion = Criterion::default()
            .without_plots()
            .output_directory(&folder)
            .sample_size(20)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_millis(if is_quick() { 300 } else { 1_000 }))
            .configure_from_args();
        Self { criterion, folder }
    }

    /// Measures `routine`, which returns the time of the given number of operations. Returns `None` if a filter left it
    /// out.
    pub(crate) fn measure(
        &mut self,
        [group, name, point]: [&str; 3],
        mut routine: impl FnMut(u64) -> Duration,
    ) -> Option<Estimate> {
        let mut ran = false;
        let mut criterion_group = self.criterion.benchmark_group(group);
        criterion_group.bench_function(BenchmarkId::new(name, point), |bencher| {
            ran = true;
            bencher.iter_custom(&mut routine);
        });
        criterion_group.finish();
        let folder = self.folder.join(group).join(name).join(point);
        ran.then(|| estimate(&folder.join("new/estimates.json")))
    }

    /// Measures as [`measure`](Self::measure) does. Also returns the ratio to a rival: each sample is followed by the
    /// same number of the rival's operations, so that a disturbance affects both.
    pub(crate) fn compare(
        &mut self,
        id: [&str; 3],
        mut ours: impl FnMut(u64) -> Duration,
        mut rival: impl FnMut(u64) -> Duration,
    ) -> Option<(Estimate, f64)> {
        let mut ratios = Vec::new();
        let estimate = self.measure(id, |count| {
            let (ours, rival) = (ours(count), rival(count));
            if count >= MANY {
                ratios.push(ours.as_secs_f64() / rival.as_secs_f64());
            }
            ours
        })?;
        Some((estimate, median(&ratios)))
    }
}

/// `target/criterion`. This program is `target/PROFILE/deps/PROGRAM`.
fn folder() -> PathBuf {
    let program = env::current_exe().expect("this program is a file");
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("criterion")
}

fn estimate(path: &Path) -> Estimate {
    let text = fs::read_to_string(path).expect("criterion has written its estimates");
    let estimates: Value = serde_json::from_str(&text).expect("they are JSON");
    let median = &estimates["median"]["point_estimate"];
    median.as_f64().expect("the median is a number")
}
