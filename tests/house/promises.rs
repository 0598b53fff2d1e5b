//! Each promise of the guide has tests, and each test file lists the promises that it proves. `TESTING.md` has the
//! table of both, which `BLESS=1` rewrites.

use std::{collections::BTreeMap, env, fs};

use crate::repository::{files, name, read, root};

const BEGIN: &str = "<!-- promises: begin -->\n";
const END: &str = "<!-- promises: end -->\n";

/// Folders whose tests prove no promise of the guide, and the reason.
const WITHOUT_PROMISES: [(&str, &str); 6] = [
    ("api", "the public API as a list"),
    ("guide", "the guide's examples"),
    ("house", "the repository"),
    ("matrix", "runs other programs on other servers"),
    ("mistakes", "the compiler's messages"),
    ("support", "helps other tests, and is tested in `house`"),
];

/// A file with tests contains at least one of these texts.
const MARKS: [&str; 3] = ["#[test]", "#[tokio::test", "facts!"];

/// The promises of the guide: their number and their first sentence.
fn promises() -> BTreeMap<u32, String> {
    let text = read("src/guide/promises.rs");
    // Joins the lines of each promise.
    let text = text.replace("\n//!   ", " ");
    let entries = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! - **P"));
    let promises = entries.map(|promise| {
        let (number, text) = promise.split_once("** ").expect("a number and a text");
        let end = text.find(". ").map_or(text.len(), |end| end + 1);
        (number.parse().expect("a number"), text[..end].to_owned())
    });
    promises.collect()
}

/// The promises that the docs of a test file list. `None` if they have no such line.
fn listed_promises(text: &str) -> Option<Vec<u32>> {
    let list = text
        .lines()
        .take_while(|line| line.starts_with("//"))
        .find_map(|line| line.strip_prefix("//! Promises: "))?;
    let numbers = list.trim_end_matches('.').split(", ");
    let numbers = numbers.filter(|name| *name != "none");
    let numbers = numbers.map(|name| {
        let number = name
            .strip_prefix('P')
            .and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no promise: {name}"))
    });
    Some(numbers.collect())
}

/// The files with tests, as paths below `tests`, and the promises that they list. `None` if the line is missing.
fn test_files() -> Vec<(String, Option<Vec<u32>>)> {
    let tests = root().join("tests");
    let all = files(&tests).into_iter().filter_map(|path| {
        let name = name(&path, &tests);
        let is_exempt = WITHOUT_PROMISES
            .iter()
            .any(|(folder, _)| name.starts_with(&format!("{folder}/")));
        let text = (name.ends_with(".rs") && !is_exempt).then(|| read(&path))?;
        let has_tests = MARKS.iter().any(|mark| text.contains(mark));
        has_tests.then(|| (name, listed_promises(&text)))
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// The table of promises for `TESTING.md`.
fn table() -> String {
    let files = test_files();
    let rows = promises().into_iter().map(|(number, text)| {
        let proves = |(_, listed): &&(String, Option<Vec<u32>>)| {
            listed
                .as_ref()
                .is_some_and(|listed| listed.contains(&number))
        };
        let names = files
            .iter()
            .filter(proves)
            .map(|(name, _)| format!("`{name}`"));
        let names: Vec<_> = names.collect();
        format!("| P{number} | {text} | {} |\n", names.join(", "))
    });
    let head = "| | promise | test files |\n|---|---|---|\n".to_owned();
    head + &rows.collect::<String>()
}

#[test]
fn each_test_file_lists_the_promises_that_it_proves() {
    let files = test_files();
    assert!(files.len() > 100, "{}", files.len());
    let without_line = files.iter().filter(|(_, listed)| listed.is_none());
    let without_line: Vec<_> = without_line.map(|(name, _)| name).collect();
    assert!(
        without_line.is_empty(),
        "without `//! Promises: …`: {without_line:#?}"
    );
    let promises = promises();
    for (name, listed) in &files {
        let mut listed = listed.iter().flatten();
        assert!(listed.all(|number| promises.contains_key(number)), "{name}");
    }
}

#[test]
fn promises_are_numbered_consecutively_and_each_has_tests() {
    let promises = promises();
    assert!(promises.len() > 20, "{}", promises.len());
    assert!(
        promises.keys().copied().eq(1..=promises.len() as u32),
        "{promises:?}"
    );
    let files = test_files();
    for number in promises.keys() {
        let mut listed = files.iter().flat_map(|(_, listed)| listed.iter().flatten());
        assert!(
            listed.any(|listed| listed == number),
            "P{number} has no test"
        );
    }
}

#[test]
fn the_table_of_promises_matches_the_test_files() {
    let text = read("TESTING.md");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (current, after) = rest.split_once(END).expect("the table ends");
    if env::var_os("BLESS").is_some() {
        let text = [before, BEGIN, &table(), END, after].concat();
        return fs::write(root().join("TESTING.md"), text).expect("it can be written");
    }
    assert_eq!(current, table(), "`BLESS=1` rewrites it");
}
