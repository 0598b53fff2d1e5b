//! The tests that `TESTING.md` lists for each fault and each bad input exist.

use std::{fs, path::Path};

/// The number of rows in each table, so that no row is removed unnoticed.
const FAULTS: usize = 35;
const BAD_INPUTS: usize = 22;

/// The cells of each row of the table under a heading. The row of the table's head is left out.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = read("TESTING.md");
    let (_, section) = text
        .split_once(&format!("\n### {heading}\n"))
        .expect("the heading");
    let section = section.split("\n#").next().expect("there is text");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    rows.skip(1).map(cells).collect()
}

fn cells(row: &str) -> Vec<String> {
    let cells = row.trim_matches('|').split(" | ");
    cells.map(|cell| cell.trim().to_owned()).collect()
}

/// The text of a file, empty if it does not exist.
fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(path).unwrap_or_default()
}

/// The tests that a text names as `tests/FILE.rs::NAME`.
fn tests(text: &str) -> Vec<(&str, &str)> {
    let words = text.split('`').filter(|word| !word.contains(' '));
    let named = words.filter_map(|word| word.split_once("::"));
    named.filter(|(file, _)| file.ends_with(".rs")).collect()
}

/// True if a source file has a test of this name, or lists the name in a macro such as `facts!`.
fn has_test(source: &str, name: &str) -> bool {
    let is_listed = source.lines().any(|line| line.trim() == name);
    let function = format!("fn {name}(");
    let before = source.split_once(&function).map(|(before, _)| before);
    // The text from the end of the previous item.
    let attributes = before.and_then(|before| before.rsplit("}\n").next());
    is_listed || attributes.is_some_and(|attributes| attributes.contains("test"))
}

#[test]
fn each_test_that_the_tables_name_exists() {
    let text = read("TESTING.md");
    let missing = |(file, name): &(&str, &str)| !has_test(&read(file), name);
    let missing: Vec<_> = tests(&text).into_iter().filter(missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_fault_has_a_test() {
    let rows = rows("Faults");
    let numbers: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    let all: Vec<_> = (1..=FAULTS).map(|number| number.to_string()).collect();
    assert_eq!(numbers, all);
    // The last column names the tests.
    assert!(rows.iter().all(|row| !tests(&row[3]).is_empty()));
}

#[test]
fn each_bad_input_has_a_test() {
    let rows = rows("Bad input");
    assert_eq!(rows.len(), BAD_INPUTS);
    assert!(rows.iter().all(|row| !tests(&row[2]).is_empty()));
}

#[test]
fn only_whole_names_of_tests_are_found() {
    let source = "#[test]\nfn one() {}\n\nfn helper() {}\n\nfacts! {\n    a_fact\n}\n";
    assert!(has_test(source, "one") && has_test(source, "a_fact"));
    assert!(!has_test(source, "helper") && !has_test(source, "on") && !has_test(source, "two"));
}
