//! Comments and docs avoid the habits that make readers read a sentence twice.

use std::sync::LazyLock;

use regex::Regex;

use crate::repository::{files, name, read, root};

const FOLDERS: [&str; 7] = [
    "benches", "cli", "docs", "examples", "proto", "src", "tests",
];
const KINDS: [&str; 4] = [".rs", ".lua", ".md", ".sh"];

/// The name of a habit, an expression that finds it, and the cure.
const WORDS: [(&str, &str, &str); 7] = [
    (
        "a clause as subject",
        r"(?:^|[.!;:] )(?:What|Who|Whoever|Whatever|Whichever) [a-z][^.?!]*(?:[.!]|$)",
        "begin with a noun",
    ),
    (
        "`Whether`",
        r"(?:^|[.!;:] )Whether ",
        "`True if …`, or `Returns true if …`",
    ),
    (
        "a thing that speaks",
        r"(?i)\b(?:says|said|tells?|told|believes?|believed)\b",
        "returns, reports, logs, notifies, assumes, records",
    ),
    (
        "an inverted genitive",
        r"(?i)\bof (?:which|those|whom)\b",
        "turn it round, or make two sentences",
    ),
    (
        "a measure of nothing",
        r"(?i)\b(?:so many|so long|so much)\b",
        "name the number",
    ),
    (
        "an old word",
        r"(?i)\b(?:anew|nobody|whoever|meanwhile|by then|but for|seldom|stead|(?:is|are|was|were) to be|thereby|hence|for ever|albeit|lest|afresh|whereby|wherein|upon)\b",
        "again, no one, if, in the meantime, except, rarely, instead, must be",
    ),
    (
        "a filler",
        r"(?i)\b(?:ones? that|of (?:its|their) own|there (?:is|are|was|were))\b",
        "repeat the noun; `separate`; begin with the noun",
    ),
];

/// The text of one comment or paragraph, and the line on which it begins.
struct Paragraph {
    line: usize,
    text: String,
}

/// The comment in a line of a source file, without its marks. The bool is true if code precedes it in the line.
fn comment<'a>(path: &str, line: &'a str) -> Option<(&'a str, bool)> {
    let mark = match path.rsplit('.').next() {
        Some("rs") => "//",
        Some("lua") => "--",
        _ => "#",
    };
    let line = line.trim_start();
    let (comment, follows_code) = match line.strip_prefix(mark) {
        Some(comment) => (comment, false),
        None => (line.split_once(&format!(" {mark} "))?.1, true),
    };
    let comment = comment.trim_start_matches(['/', '!']).trim();
    Some((comment, follows_code))
}

/// The prose of a file: its comments, or its text outside of code.
fn prose(path: &str, text: &str) -> Vec<Paragraph> {
    let is_page = path.ends_with(".md");
    let mut is_code = false;
    let mut all: Vec<Paragraph> = Vec::new();
    // True if the next line of prose continues the last paragraph.
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let prose = if is_page {
            Some((line.trim(), false))
        } else {
            comment(path, line)
        };
        let Some((prose, follows_code)) = prose else {
            (goes_on, is_code) = (false, false);
            continue;
        };
        if prose.starts_with("```") {
            (goes_on, is_code) = (false, !is_code);
            continue;
        }
        let begins = follows_code || prose.starts_with(['-', '*', '|', '#', '>']);
        if is_code || prose.is_empty() {
            goes_on = false;
            continue;
        }
        match all.last_mut().filter(|_| goes_on && !begins) {
            Some(last) => {
                last.text.push(' ');
                last.text.push_str(prose);
            }
            None => all.push(Paragraph {
                line: number,
                text: prose
                    .trim_start_matches(['-', '*', '|', '#', '>', ' '])
                    .to_owned(),
            }),
        }
        goes_on = true;
    }
    all
}

/// A message for each habit in a text: where it is, its words, and the cure.
fn habits(path: &str, text: &str) -> Vec<String> {
    static CODE: LazyLock<Regex> = LazyLock::new(|| expression("`[^`]*`"));
    static HABITS: LazyLock<[(&str, Regex, &str); 7]> =
        LazyLock::new(|| WORDS.map(|(name, words, cure)| (name, expression(words), cure)));
    let mut all = Vec::new();
    for Paragraph { line, text } in prose(path, text) {
        let text = CODE.replace_all(&text, "`…`");
        for (name, words, cure) in HABITS.iter() {
            let found = words.find_iter(&text).map(|found| found.as_str().trim());
            all.extend(found.map(|found| format!("{path}:{line}: {name}: `{found}`: {cure}")));
        }
    }
    all
}

fn expression(words: &str) -> Regex {
    Regex::new(words).expect("an expression")
}

/// The files of the repository that have prose, as paths from its root.
fn sources() -> Vec<String> {
    let entries = root().read_dir().expect("the root can be listed");
    let pages = entries.map(|entry| entry.expect("the root can be listed").path());
    let pages = pages.filter(|path| path.is_file());
    let folders = FOLDERS
        .iter()
        .flat_map(|folder| files(&root().join(folder)));
    let names = pages.chain(folders).map(|path| name(&path, root()));
    let has_prose = |name: &String| KINDS.iter().any(|kind| name.ends_with(kind));
    names.filter(has_prose).collect()
}

#[test]
fn each_habit_is_found_in_comments_and_pages_and_not_in_code() {
    let comment = "/// What it has is\n/// left. Whether it says\n/// so many, of which nobody\n/// knows one that is `told`.\n";
    // The first comment is one paragraph, which has each of the seven habits once. The second follows code.
    let source = [comment, "let told = 1; ", "// It is told.\n"].concat();
    let found = habits("a.rs", &source);
    assert_eq!(found.len(), 8, "{found:?}");
    let first: Vec<_> = found
        .iter()
        .filter(|line| line.starts_with("a.rs:1: "))
        .collect();
    assert_eq!(first.len(), 7, "{first:?}");
    assert_eq!(habits("a.md", "Seldom.\n```\nseldom\n```\n").len(), 1);
    assert_eq!(habits("a.lua", "local told = 1 -- it is told\n").len(), 1);
    let question = habits("a.rs", "//! What is a lease? A claim's units.\n");
    assert!(question.is_empty(), "{question:?}");
}

#[test]
fn comments_and_docs_have_none_of_these_habits() {
    let found = sources()
        .into_iter()
        .flat_map(|path| habits(&path, &read(&path)));
    let found: Vec<_> = found.collect();
    assert!(
        found.is_empty(),
        "{} lines:\n{}",
        found.len(),
        found.join("\n")
    );
}
