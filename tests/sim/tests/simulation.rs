//! The simulation finds mistakes that are planted, and none in the shipped code.
//!
//! Promises: P1, P2, P3, P4, P5, P6, P8, P9, P10, P12, P13, P14, P16, P17, P18, P19, P24.

use model::{lua::Runner, scripts::Scripts};
use std::{fs, path::Path, time::Instant};
use tower_semaphore_sim::{
    planted::{Bug, bugs},
    schedule::{Schedule, Workload},
    search::{explain, first},
    server::{compiled, shipped},
    world::run,
};

/// How many schedules a core without bugs passes in a test, unless `SCHEDULES` is another number. The number is small,
/// so that each test ends in time on a busy machine.
const PART: u64 = 188;

/// Each bug must be found within this number of schedules.
const BOUND: u64 = 20_000;

/// The search for a bug starts this number of schedules before the schedule that found it last, so that the search is
/// short.
const BEFORE: u64 = 10;

/// The workload that `WORKLOAD` names, or that of one server.
fn workload() -> Workload {
    let name = std::env::var("WORKLOAD").unwrap_or_else(|_| "server".to_owned());
    let mut all = Workload::ALL.into_iter();
    let found = all.find(|workload| workload.name() == name);
    found.unwrap_or_else(|| panic!("no workload is called {name}"))
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("it is a number"))
}

/// `SEED=7 cargo test -p tower-semaphore-sim one`
#[test]
fn one_schedule_of_the_shipped_core() {
    let seed = number("SEED").unwrap_or(1);
    let runner = shipped();
    let outcome = run(&runner, &Schedule::new(workload(), seed), true);
    println!("{}", outcome.trace);
    let found = outcome
        .violation
        .map(|violation| explain(&runner, workload(), (seed, violation)));
    assert!(found.is_none(), "{}", found.expect("it was found"));
}

/// The number of schedules that a test runs. Schedules with crowds take longer.
fn part_of(workload: Workload) -> u64 {
    match workload {
        Workload::Fair | Workload::Questions | Workload::Mixed => PART / 2,
        _ => PART,
    }
}

/// Runs the first schedules of a workload, or those from seed `FROM` on, and fails if one of them does.
fn pass(workload: Workload) {
    let schedules = number("SCHEDULES").unwrap_or(part_of(workload));
    pass_from(workload, number("FROM").unwrap_or(0), schedules);
}

/// Runs schedules from a seed on, and fails if one of them does.
fn pass_from(workload: Workload, from: u64, schedules: u64) {
    let (runner, begun) = (shipped(), Instant::now());
    let found = first(&runner, (workload, from..from + schedules));
    let time = begun.elapsed() / schedules as u32;
    println!("{schedules} schedules, {time:?} each");
    let found = found.map(|found| explain(&runner, workload, found));
    assert!(found.is_none(), "{}", found.expect("it was found"));
}

#[test]
fn the_shipped_core_passes() {
    pass(Workload::Server);
}

#[test]
fn the_shipped_core_passes_on_a_cluster() {
    pass(Workload::Cluster);
}

#[test]
fn the_shipped_core_passes_in_outages() {
    pass(Workload::Outage);
}

#[test]
fn the_shipped_core_passes_in_outages_of_a_cluster() {
    pass(Workload::ClusterOutage);
}

/// Makes a module for each workload, and in it a test of each part of the workload's schedules.
macro_rules! parts {
    ($($workload:ident $module:ident: $($part:ident = $number:literal)+;)+) => {
        $(
            mod $module {
                use super::*;

                $(
                    #[test]
                    fn $part() {
                        let part = part_of(Workload::$workload);
                        pass_from(Workload::$workload, part * $number, part);
                    }
                )+
            }
        )+
    };
}

/// The schedules that are run for each change, in addition to the first parts.
mod the_shipped_core_passes_further {
    use super::*;

    parts! {
        Server on_a_server: second = 1;
        Cluster on_a_cluster: second = 1;
        Outage in_outages: second = 1;
        ClusterOutage in_outages_of_a_cluster: second = 1;
        Fair with_fair_queues: second = 1;
        Limits with_limits: second = 1;
        Pauses with_pauses: second = 1;
        Questions with_questions: second = 1;
        Mixed with_a_mixture: second = 1;
        Budgets with_budgets: second = 1;
    }
}

/// Seeds that once found a mistake in the core or in the judge. Most are too high for the other tests to reach.
const FAILED: [(Workload, &[u64]); 10] = [
    (
        Workload::Server,
        &[
            146_918, 232_108, 295_007, 387_536, 418_459, 487_427, 560_493, 687_440, 1_120_093,
            1_162_259, 1_167_274, 1_185_831, 1_540_279, 3_016_176, 20_003_529, 20_020_023,
            20_069_523, 20_076_366, 60_054_056,
        ],
    ),
    (
        Workload::Cluster,
        &[
            142_072, 162_679, 189_206, 212_229, 233_041, 1_002_430, 1_019_063, 1_075_845,
            1_112_112, 1_113_640, 1_140_142, 1_169_325, 21, 55, 182, 3_233_607, 20_000_791,
            20_004_799, 20_008_975, 20_010_031, 20_019_069, 20_054_647,
        ],
    ),
    (
        Workload::Outage,
        &[
            155_244, 1_018_854, 1_028_931, 1_029_320, 1_050_124, 1_069_916, 1_107_721, 4_007_217,
            38_001_333,
        ],
    ),
    (
        Workload::ClusterOutage,
        &[
            106, 617, 639, 2_994, 4_531, 8_742, 3_202_091, 7_005_475, 20_002_868, 20_010_801,
            20_015_648, 20_036_177, 20_057_610, 20_089_499, 37_001_421, 53_007_073, 90_223_798,
            94_115_555,
        ],
    ),
    (
        Workload::Fair,
        &[267, 14_221, 20_017_842, 20_015_111, 36_000_135, 40_009_476],
    ),
    (
        Workload::Limits,
        &[
            543, 11_560, 16_249, 1_001_764, 1_017_450, 1_025_421, 7_017_324, 9_001_614, 20_010_977,
            20_019_069, 20_015_666, 20_026_406, 20_032_442, 20_062_402, 20_099_804, 40_010_900,
            53_011_759, 90_227_201, 99_046_702,
        ],
    ),
    (
        Workload::Pauses,
        &[
            20_000_133, 20_003_704, 20_005_241, 20_005_452, 20_039_396, 20_051_252, 20_053_060,
            20_053_437, 20_063_200, 36_001_006, 37_001_459, 47_028_698,
        ],
    ),
    (Workload::Questions, &[20_051_673, 20_064_856, 41_001_345]),
    (Workload::Mixed, &[84_000_274, 86_017_670, 88_034_969]),
    (
        Workload::Budgets,
        &[
            18,
            82,
            136,
            139,
            142,
            462,
            872,
            3_369,
            200_750,
            120_005_981,
            20_001_908,
            20_005_764,
            20_004_024,
            20_026_583,
            20_027_458,
            21_003_959,
            30_006_835,
            30_013_310,
            40_006_947,
            40_011_162,
            40_017_704,
            40_019_045,
            21_001_080,
        ],
    ),
];

#[test]
fn each_schedule_that_has_failed_passes() {
    let runner = shipped();
    for (workload, seeds) in FAILED {
        for seed in seeds {
            let schedule = Schedule::new(workload, *seed);
            let outcome = run(&runner, &schedule, false);
            let violation = outcome.violation.as_ref();
            assert!(violation.is_none(), "{workload:?} {seed}: {violation:?}");
        }
    }
}

#[test]
fn the_shipped_core_passes_with_fair_queues() {
    pass(Workload::Fair);
}

#[test]
fn the_shipped_core_passes_with_limits() {
    pass(Workload::Limits);
}

#[test]
fn the_shipped_core_passes_with_pauses() {
    pass(Workload::Pauses);
}

#[test]
fn the_shipped_core_passes_with_questions() {
    pass(Workload::Questions);
}

#[test]
fn the_shipped_core_passes_with_a_mixture() {
    pass(Workload::Mixed);
}

#[test]
fn the_shipped_core_passes_with_budgets() {
    pass(Workload::Budgets);
}

#[test]
fn a_seed_gives_the_same_trace_each_time() {
    let runner = shipped();
    for seed in 0..50 {
        let schedule = Schedule::new(Workload::Server, seed);
        let trace = run(&runner, &schedule, true).trace;
        assert!(!trace.is_empty());
        assert_eq!(trace, run(&shipped(), &schedule, true).trace);
    }
}

#[test]
fn each_bug_of_a_script_is_found() {
    assert_each_is_found(Workload::Server, bugs("In the scripts"));
}

fn assert_each_is_found(workload: Workload, bugs: Vec<Bug>) {
    let mut missed = Vec::new();
    for bug in bugs {
        let from = bug.schedules.unwrap_or_default().saturating_sub(BEFORE);
        match first(&planted(&bug), (workload, from..from + BOUND)) {
            Some((seed, violation)) => println!("{}: {}, {}", bug.name, seed + 1, violation.rule),
            None => missed.push(bug.name),
        }
    }
    assert!(
        missed.is_empty(),
        "not found within {BOUND} schedules: {missed:?}"
    );
}

/// The scripts with a planted bug.
fn planted(bug: &Bug) -> Runner {
    compiled(&Scripts::shipped().patched(bug.file, &bug.old, &bug.new))
}

#[test]
#[ignore = "it takes minutes: for the night"]
fn each_rare_bug_of_a_script_is_found() {
    assert_each_is_found(Workload::Server, bugs("In the scripts, rare"));
}

#[test]
fn each_bug_of_a_fair_queue_is_found() {
    assert_each_is_found(Workload::Fair, bugs("In the scripts, of fair queues"));
}

#[test]
fn each_bug_of_a_pause_is_found() {
    assert_each_is_found(Workload::Pauses, bugs("In the scripts, of pauses"));
}

#[test]
fn each_bug_of_a_budget_is_found() {
    assert_each_is_found(Workload::Budgets, bugs("In the scripts, of budgets"));
}

#[test]
fn each_bug_of_the_core_can_be_planted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for bug in bugs("In the core") {
        let text = fs::read_to_string(bug.path(&root)).expect("the core has the file");
        assert!(bug.fits(&text), "{}: {:?}", bug.name, bug.old);
    }
}

#[test]
fn a_failure_is_made_shorter_and_names_its_seed() {
    // Any bug that is found soon will do.
    let runner = planted(&bugs("In the scripts")[3]);
    let found = first(&runner, (Workload::Server, 0..BOUND)).expect("it is found");
    let (seed, rule) = (found.0, found.1.rule);
    let found = explain(&runner, Workload::Server, found);
    assert!(found.schedule.steps.len() < Schedule::new(Workload::Server, seed).steps.len() / 2);
    let text = found.to_string();
    println!("{text}");
    assert!(text.contains(&format!("SEED={seed} ")), "{text}");
    let last = text.trim_end().lines().last().expect("it has lines");
    assert!(last.contains(&format!("VIOLATION of {rule}")), "{last}");
}
