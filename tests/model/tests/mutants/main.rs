//! Each mistake of the first table of `planted.md` is planted in a script, and a walk finds it.

use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// The rows of the mistakes, each with its columns: the file, what stands there, what is put in its place, the
/// invariant that does not hold then, and the scenario that meets it.
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

/// A column's code: between backticks, or nothing.
fn code(column: &str) -> &str {
    match column {
        "nothing" => "",
        code => code.trim_matches('`'),
    }
}

/// What is wrong with a row, if anything is.
fn wrong((row, [file, old, new, invariant, scenario]): (&str, [&str; 5])) -> Option<String> {
    let scripts = Scripts::shipped().patched(file, code(old), code(new));
    match walk(&scenarios::named(scenario), &scripts).fault {
        None => Some(format!("nobody sees\n{row}")),
        Some(fault) if fault.violation.invariant == invariant => None,
        Some(fault) => Some(format!("found otherwise\n{row}\n{fault}")),
    }
}

/// Of each part of the table there is a test, so that each ends soon on a busy machine.
const PARTS: usize = 8;

fn part_is_found(part: usize) {
    let rows = rows().skip(part).step_by(PARTS);
    let wrong: Vec<_> = rows.filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! facts {
    ($($name:ident: $part:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            part_is_found($part);
        })+

        #[test]
        fn each_row_of_the_table_is_in_one_part() {
            assert_eq!([$($part),+], std::array::from_fn::<_, PARTS, _>(|part| part));
            assert!(rows().count() >= 135, "rows are missing");
        }
    };
}

facts! {
    planted_mistake_1_and_every_eighth_after_it_is_found_by_its_invariant: 0,
    planted_mistake_2_and_every_eighth_after_it_is_found_by_its_invariant: 1,
    planted_mistake_3_and_every_eighth_after_it_is_found_by_its_invariant: 2,
    planted_mistake_4_and_every_eighth_after_it_is_found_by_its_invariant: 3,
    planted_mistake_5_and_every_eighth_after_it_is_found_by_its_invariant: 4,
    planted_mistake_6_and_every_eighth_after_it_is_found_by_its_invariant: 5,
    planted_mistake_7_and_every_eighth_after_it_is_found_by_its_invariant: 6,
    planted_mistake_8_and_every_eighth_after_it_is_found_by_its_invariant: 7,
}
