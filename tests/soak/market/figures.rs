//! Memory and descriptors of the processes, which must not grow once a process is warm.

use super::{fixture::Fixture, fleet::PROCESSES};
use std::{
    collections::BTreeMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use testing::bench::proc::resident;
use tokio::time::sleep;

const TICK: Duration = Duration::from_secs(1);
/// A process with fewer samples than this has not been warm for long enough to be judged.
const FEWEST: usize = 30;
/// The peaks of the last third of a process's life may exceed those of the second third by a factor (see `judge`) and
/// by these constants.
const MORE_MEMORY: u64 = 16 << 20;
const MORE_DESCRIPTORS: usize = 64;
/// How many more descriptors an idle process may have than in its first sample.
const MORE_IDLE: usize = 24;

#[derive(Debug, Clone, Copy)]
struct Sample {
    memory: u64,
    descriptors: usize,
}

/// The samples of each process, by its position in the fleet and its process id.
#[derive(Debug, Default)]
pub(crate) struct Figures(Mutex<BTreeMap<(usize, u32), Vec<Sample>>>);

impl Figures {
    /// Takes samples every second, forever.
    pub(crate) async fn watch(&self, fixture: &Fixture) {
        loop {
            self.sample(fixture);
            fixture.fleet.report_failures(&fixture.report);
            sleep(TICK).await;
        }
    }

    pub(crate) fn sample(&self, fixture: &Fixture) {
        for at in 0..PROCESSES {
            // The sample is taken under the lock of the fleet, so the process cannot be removed at the same time.
            let sample = fixture
                .fleet
                .with(at, |market| (market.pid(), sample(market.pid())));
            if let Some((pid, Some(sample))) = sample {
                self.lock().entry((at, pid)).or_default().push(sample);
            }
        }
    }

    /// Prints how each process grew, and reports those that grew too much.
    pub(crate) fn judge(&self, fixture: &Fixture) {
        for ((at, pid), samples) in self.lock().iter() {
            if samples.len() < FEWEST {
                continue;
            }
            let third = samples.len() / 3;
            let warm = peak(&samples[third..2 * third]);
            let late = peak(&samples[2 * third..]);
            let figures = format!(
                "process {at} ({pid}), {} s: peak memory {} then {} MiB, descriptors {} then {}",
                samples.len(),
                warm.memory >> 20,
                late.memory >> 20,
                warm.descriptors,
                late.descriptors
            );
            println!("{figures}");
            let is_flat = late.memory <= warm.memory + warm.memory / 4 + MORE_MEMORY
                && late.descriptors <= warm.descriptors * 3 / 2 + MORE_DESCRIPTORS;
            if !is_flat {
                fixture.report.wrong("a process grew", figures);
            }
        }
    }

    /// The first process that has too many descriptors when there should be no load, compared with its first sample.
    pub(crate) fn too_many_descriptors(&self, fixture: &Fixture) -> Option<String> {
        let samples = self.lock();
        (0..PROCESSES).find_map(|at| {
            let pid = fixture.fleet.with(at, |market| market.pid())?;
            let first = samples.get(&(at, pid))?.first()?.descriptors;
            let now = sample(pid)?.descriptors;
            (now > first + MORE_IDLE)
                .then(|| format!("process {at}: {now} descriptors, {first} at first"))
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, u32), Vec<Sample>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn peak(samples: &[Sample]) -> Sample {
    let memory = samples.iter().map(|sample| sample.memory).max();
    let descriptors = samples.iter().map(|sample| sample.descriptors).max();
    Sample {
        memory: memory.unwrap_or_default(),
        descriptors: descriptors.unwrap_or_default(),
    }
}

/// Returns `None` if the process has just ended.
fn sample(pid: u32) -> Option<Sample> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(Sample {
        memory: resident(pid),
        descriptors,
    })
}
