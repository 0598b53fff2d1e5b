//! Each promise of the guide has tests, each test file names the promises that it shows, and `TESTING.md` has the table.
//! `BLESS=1` rewrites the table.

use std::{collections::BTreeMap, env, fs};

use crate::repository::{files, name, read, root};

const BEGIN: &str = "<!-- promises: begin -->\n";
const END: &str = "<!-- promises: end -->\n";

/// Folders whose tests show no promise of the guide.
const OTHERS: [(&str, &str); 6] = [
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
    let text = text.replace("\n//!   ", " ");
    let listed = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! - **P"));
    let promises = listed.map(|promise| {
        let (number, text) = promise.split_once("** ").expect("a number and a text");
        let end = text.find(". ").map_or(text.len(), |end| end + 1);
        (number.parse().expect("a number"), text[..end].to_owned())
    });
    promises.collect()
}

/// The promises that the docs of a test file name. `None` if they have no such line.
fn shown(text: &str) -> Option<Vec<u32>> {
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

/// The files with tests, as paths below `tests`, and the promises that they name.
fn test_files() -> Vec<(String, Option<Vec<u32>>)> {
    let tests = root().join("tests");
    let all = files(&tests).into_iter().filter_map(|path| {
        let name = name(&path, &tests);
        let mut others = OTHERS.iter();
        let is_other = others.any(|(folder, _)| name.starts_with(&format!("{folder}/")));
        let text = (name.ends_with(".rs") && !is_other).then(|| read(&path))?;
        let has_tests = MARKS.iter().any(|mark| text.contains(mark));
        has_tests.then(|| (name, shown(&text)))
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn table() -> String {
    let files = test_files();
    let rows = promises().into_iter().map(|(number, text)| {
        let shows = |(_, shown): &&(String, Option<Vec<u32>>)| {
            shown.as_ref().is_some_and(|shown| shown.contains(&number))
        };
        let names = files
            .iter()
            .filter(shows)
            .map(|(name, _)| format!("`{name}`"));
        let names: Vec<_> = names.collect();
        format!("| P{number} | {text} | {} |\n", names.join(", "))
    });
    let head = "| | promise | test files |\n|---|---|---|\n".to_owned();
    head + &rows.collect::<String>()
}

#[test]
fn each_test_file_names_the_promises_that_it_shows() {
    let files = test_files();
    assert!(files.len() > 100, "{}", files.len());
    let silent = files.iter().filter(|(_, shown)| shown.is_none());
    let silent: Vec<_> = silent.map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "without `//! Promises: …`: {silent:#?}");
    let promises = promises();
    for (name, shown) in &files {
        let mut shown = shown.iter().flatten();
        assert!(shown.all(|number| promises.contains_key(number)), "{name}");
    }
}

#[test]
fn each_promise_is_numbered_in_turn_and_has_tests() {
    let promises = promises();
    assert!(promises.len() > 20, "{}", promises.len());
    assert!(
        promises.keys().copied().eq(1..=promises.len() as u32),
        "{promises:?}"
    );
    let files = test_files();
    for number in promises.keys() {
        let mut shown = files.iter().flat_map(|(_, shown)| shown.iter().flatten());
        assert!(shown.any(|shown| shown == number), "P{number} has no test");
    }
}

#[test]
fn the_table_of_promises_is_that_of_the_test_files() {
    let text = read("TESTING.md");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (known, after) = rest.split_once(END).expect("the table ends");
    if env::var_os("BLESS").is_some() {
        let text = [before, BEGIN, &table(), END, after].concat();
        return fs::write(root().join("TESTING.md"), text).expect("it can be written");
    }
    assert_eq!(known, table(), "`BLESS=1` rewrites it");
}
