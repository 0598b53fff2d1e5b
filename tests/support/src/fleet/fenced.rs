//! A file with a lock that checks fencing tokens.

use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// A file that rejects entries whose token is lower than an earlier one.
pub struct FencedFile(PathBuf);

impl FencedFile {
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Appends `TOKEN TEXT` unless the token is too low. Returns true if it was appended.
    pub fn write(&self, token: u64, text: &str) -> bool {
        let mut file = self.open();
        // The operating system's lock makes the check and the write atomic. It ends with `file`.
        flock(&file, FlockOperation::LockExclusive).expect("a file can be locked");
        let mut before = String::new();
        file.read_to_string(&mut before).expect("it holds text");
        let highest = before.lines().filter_map(token_of).max();
        let is_accepted = highest.is_none_or(|highest| token >= highest);
        if is_accepted {
            writeln!(file, "{token} {text}").expect("it can be written");
        }
        is_accepted
    }

    /// The written texts, in order.
    pub fn writers(&self) -> Vec<String> {
        let content = std::fs::read_to_string(&self.0).unwrap_or_default();
        let entries = content.lines().filter_map(|entry| entry.split_once(' '));
        entries.map(|(_, text)| text.to_owned()).collect()
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).read(true).open(&self.0);
        file.expect("the folder is there")
    }
}

fn token_of(entry: &str) -> Option<u64> {
    entry.split_once(' ')?.0.parse().ok()
}
