//! What criterion measures, and what is read from it afterwards.

use criterion::{BenchmarkId, Criterion};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};
use testing::bench::{figures::median, run::is_quick};

/// With fewer operations a sample says more of the clock than of them.
const MANY: u64 = 1_000;

/// Criterion, and where it leaves its estimates.
pub(crate) struct Bench {
    criterion: Criterion,
    folder: PathBuf,
}

/// How long one operation takes, in nanoseconds: criterion's estimate.
pub(crate) type Estimate = f64;

impl Bench {
    /// Flags are criterion's own: `--quick` and a filter, say.
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

    /// Measures what `routine` says it took for so many operations. `None` if a filter left it
    /// out.
    pub(crate) fn measure(
        &mut self,
        [group, name, point]: [&str; 3],
        mut routine: impl FnMut(u64) -> Duration,
    ) -> Option<Estimate> {
        let mut ran = false;
        let mut group_of = self.criterion.benchmark_group(group);
        group_of.bench_function(BenchmarkId::new(name, point), |bencher| {
            ran = true;
            bencher.iter_custom(&mut routine);
        });
        group_of.finish();
        let folder = self.folder.join(group).join(name).join(point);
        ran.then(|| estimate(&folder.join("new/estimates.json")))
    }

    /// As [`measure`](Self::measure), and the ratio to a rival: each sample is followed by as many
    /// operations of the rival, so that what disturbs one disturbs both.
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

/// Beside the profile's folder, in which this program lies three folders deep.
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
