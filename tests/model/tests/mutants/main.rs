//! Each mistake of the first table of `planted.md` is planted in a script, and a walk finds it.
//!
//! Promises: P1, P3, P5, P6, P12, P14, P24.

use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// The rows of mistakes, each with its columns: the file, the original text, its replacement, the invariant that
/// breaks, and the scenario that finds it.
fn rows() -> impl Iterator<Item = (&'static str, [&'static str; 5])> {
    let (found, _) = include_str!("planted.md")
        .split_once("No walk finds these")
        .expect("two tables");
    let rows = found.lines().filter(|line| line.starts_with("| "));
    rows.skip(1).map(|row| {
        let columns: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        (row, columns.try_into().expect("five columns"))
    })
}

/// Returns a column's code, which is between backticks, or an empty text for `nothing`.
fn code(column: &str) -> &str {
    match column {
        "nothing" => "",
        code => code.trim_matches('`'),
    }
}

/// The report on a row whose mistake is not found, or is found by another invariant.
fn fault_of((row, [file, old, new, invariant, scenario]): (&str, [&str; 5])) -> Option<String> {
    let scripts = Scripts::shipped().patched(file, code(old), code(new));
    match walk(&scenarios::named(scenario), &scripts).fault {
        None => Some(format!("not found:\n{row}")),
        Some(fault) if fault.violation.invariant == invariant => None,
        Some(fault) => Some(format!("found by another invariant:\n{row}\n{fault}")),
    }
}

/// Each part of the table has a separate test, so that each finishes in time on a busy machine.
const PARTS: [&str; 8] = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
];

fn part_is_found(part: &str) {
    let part = PARTS.iter().position(|other| *other == part);
    let rows = rows().skip(part.expect("a part")).step_by(PARTS.len());
    let faults: Vec<_> = rows.filter_map(fault_of).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

macro_rules! parts {
    ($($part:ident)+) => {
        /// Every eighth planted mistake, from this one on, is found by the invariant that the table names.
        mod every_eighth_planted_mistake_is_found_by_its_invariant_from_the {
            $(#[test]
            fn $part() {
                super::part_is_found(stringify!($part));
            })+
        }

        #[test]
        fn each_row_of_the_table_is_in_one_part() {
            assert_eq!([$(stringify!($part)),+], PARTS);
            assert!(rows().count() >= 135, "rows are missing");
        }
    };
}

parts! { first second third fourth fifth sixth seventh eighth }
