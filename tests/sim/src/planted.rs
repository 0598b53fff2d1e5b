//! The bugs of `planted.md`.

use std::path::{Path, PathBuf};

/// A text in a file, and the text that replaces it.
#[derive(Debug)]
pub struct Bug {
    /// The name, which describes the fault.
    pub name: &'static str,
    /// The name of the file without its extension.
    pub file: &'static str,
    /// After how many schedules it was last found. `None`: the file names no number.
    pub schedules: Option<u64>,
    /// The text that is replaced. It occurs once.
    pub old: String,
    /// The text that is planted.
    pub new: String,
}

impl Bug {
    /// The file of a bug of the core, in this folder of the repository.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("proto/src/core/{}.rs", self.file))
    }

    /// True if the text that the bug replaces occurs once, so that the bug can be planted.
    pub fn fits(&self, text: &str) -> bool {
        text.matches(&self.old).count() == 1
    }
}

/// The bugs of a section, in its order.
///
/// # Panics
///
/// If the section does not exist.
pub fn bugs(section: &str) -> Vec<Bug> {
    let all = include_str!("../planted.md");
    let (_, all) = all
        .split_once(&format!("\n## {section}\n"))
        .expect("there is such a section");
    let (all, _) = all.split_once("\n## ").expect("the facts come last");
    all.split("\n### ").skip(1).map(bug).collect()
}

/// Reads a bug: its name, a line with the file and the number of schedules, and a diff.
fn bug(text: &'static str) -> Bug {
    let (name, text) = text.split_once('\n').expect("a name");
    let lines_of = |mark: char| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.collect::<Vec<_>>().join("\n")
    };
    let count = |(_, rest): (_, &str)| rest.split(' ').next()?.replace(',', "").parse().ok();
    Bug {
        name,
        schedules: text.split_once("`: ").and_then(count),
        file: text.split('`').nth(1).expect("a file"),
        old: lines_of('-'),
        new: lines_of('+'),
    }
}
