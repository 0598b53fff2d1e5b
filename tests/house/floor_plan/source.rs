//! Source files, and their code without comments and unit tests.

use crate::repository::{files, name, read, root};

/// A file below `src`.
pub(crate) struct Source {
    /// Relative to `src`.
    pub(crate) path: String,
    /// The top-level module of the crate that it belongs to.
    pub(crate) module: String,
    /// The whole text.
    pub(crate) text: String,
    /// The text without comments and unit tests.
    code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let first = path.split('/').next().unwrap_or(path);
        Self {
            path: path.to_owned(),
            module: first.trim_end_matches(".rs").to_owned(),
            text: text.to_owned(),
            code: match path.ends_with(".md") {
                true => String::new(), // all of it is documentation
                false => code(text),
            },
        }
    }

    /// The text without comments and unit tests.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// True if the code has this word.
    pub(crate) fn names(&self, word: &str) -> bool {
        words(&self.code).any(|found| found == word)
    }
}

/// All files below `src`.
pub(crate) fn sources() -> Vec<Source> {
    sources_below("src")
}

/// All files below `proto/src`.
pub(crate) fn proto_sources() -> Vec<Source> {
    sources_below("proto/src")
}

fn sources_below(folder: &str) -> Vec<Source> {
    let root = root().join(folder);
    let sources = files(&root).into_iter();
    let sources = sources.map(|path| Source::new(&name(&path, &root), &read(&path)));
    sources.collect()
}

fn code(text: &str) -> String {
    let mut marks = text.match_indices("#[cfg(test)]");
    let tests = marks.find(|(at, mark)| text[at + mark.len()..].trim_start().starts_with("mod "));
    let code = tests.map_or(text, |(at, _)| &text[..at]);
    // This also cuts a line at a URL in a string.
    let lines = code.lines();
    let code = lines.map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.collect::<Vec<_>>().join("\n")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}
