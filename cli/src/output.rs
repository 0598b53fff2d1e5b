//! Prints results as tables or JSON, to a terminal or elsewhere.

use crate::{failure::Failure, screen::Screen, table::Style};
use serde_json::Value;
use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

/// How results are printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_terminal: bool,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        // A dumb terminal is treated like a file, because it has neither an alternate screen nor colours.
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = io::stdout().is_terminal() && !is_dumb;
        Self {
            is_json,
            is_terminal,
        }
    }

    /// True if the output can be updated live: it is a terminal, and not JSON.
    pub(crate) fn is_live(self) -> bool {
        self.is_terminal && !self.is_json
    }

    /// The appearance of tables.
    pub(crate) fn style(self) -> Style {
        let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style {
            width: self.is_terminal.then(|| Screen::size().0),
            has_colours: self.is_terminal && !is_plain,
        }
    }

    /// Prints lines of text.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json(self, value: &Value) -> Result<(), Failure> {
        self.text(&line(value))
    }

    /// Prints each value as one line of JSON, or prints the table.
    pub(crate) fn list(
        self,
        mut values: impl Iterator<Item = Value>,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.is_json {
            true => values.try_for_each(|value| self.json(&value)),
            false => self.text(&table()),
        }
    }
}

/// A value as one line of JSON.
pub(crate) fn line(value: &Value) -> String {
    escaped(&value.to_string()) + "\n"
}

/// Escapes the characters in JSON strings that a terminal would obey.
pub(crate) fn escaped(json: &str) -> String {
    if json
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ')
    {
        return json.to_owned();
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if !is_obeyed(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

fn is_obeyed(character: char) -> bool {
    character.is_control() || crate::text::is_unseen(character)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_read_back_and_has_nothing_that_a_terminal_obeys() {
        let value = json!({"key": "a\x1b[2J\u{9b}\x7f\u{202e}\u{e0001}\"\\日"});
        let text = escaped(&value.to_string());
        assert!(!text.contains(is_obeyed), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
    }
}
