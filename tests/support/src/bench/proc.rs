//! Figures about a process, from the kernel.

use std::{fs, time::Duration};

/// The processor time that a process has used so far.
///
/// # Panics
///
/// If the process or `/proc` does not exist.
pub fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The name before the last parenthesis may contain anything.
    let (_, fields) = stat.rsplit_once(')').expect("the format is stable");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("ticks are a number");
    let per_second = rustix::param::clock_ticks_per_second();
    // After the name, the fields 11 and 12 are the times in user and in kernel mode.
    Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / per_second as f64)
}

/// The memory of a process that is in RAM now, in bytes.
///
/// # Panics
///
/// As [`cpu`].
pub fn resident(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process runs");
    // The second field is the resident size.
    let pages = statm
        .split_whitespace()
        .nth(1)
        .expect("the format is stable");
    pages.parse::<u64>().expect("pages are a number") * rustix::param::page_size() as u64
}
