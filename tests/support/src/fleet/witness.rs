//! A log of the actions of several processes, in their real order.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// A file of lines `WORD PROCESS TOKEN`. Each line is appended in one write, so the operating system keeps the order.
#[derive(Clone)]
pub struct Witness(PathBuf);

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub word: String,
    pub process: u32,
    pub token: u64,
}

impl Witness {
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, word: &str, process: u32, token: u64) {
        let entry = format!("{word} {process} {token}\n");
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        let mut file = file.expect("the folder is there");
        let written = file.write(entry.as_bytes()).expect("it can be written");
        assert_eq!(written, entry.len(), "an entry in two pieces");
    }

    pub fn read(&self) -> Vec<Entry> {
        let content = fs::read_to_string(&self.0).unwrap_or_default();
        content.lines().map(parse).collect()
    }
}

fn parse(line: &str) -> Entry {
    let mut words = line.split(' ');
    let mut next = || words.next().expect("three words");
    Entry {
        word: next().to_owned(),
        process: next().parse().expect("a number"),
        token: next().parse().expect("a number"),
    }
}
