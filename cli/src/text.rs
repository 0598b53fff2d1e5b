//! Escapes text from other processes for a terminal, because keys, labels, notes and names may contain any characters.

use std::{ffi::OsStr, fmt::Write};
use tower_semaphore::{Key, semaphore::StoredKey};
use unicode_width::UnicodeWidthChar;

/// Escapes the characters that a terminal would obey. A control character is written as `\x1b`, a character that
/// reorders or hides others as `\u{202e}`, and a backslash twice.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        push(&mut shown, character);
    }
    shown
}

fn push(shown: &mut String, character: char) {
    // Writing to a string cannot fail.
    let _ = match character {
        '\\' => write!(shown, r"\\"),
        _ if character.is_control() => write!(shown, r"\x{:02x}", u32::from(character)),
        _ if is_unseen(character) => write!(shown, r"\u{{{:x}}}", u32::from(character)),
        _ => write!(shown, "{character}"),
    };
}

/// True for a character without a width, and for a character that changes the direction of others or ends a line.
pub(crate) fn is_unseen(character: char) -> bool {
    let turns = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.width().is_none_or(|width| width == 0)
}

/// Escapes bytes. A byte that is not UTF-8 is written in hexadecimal, as `\xff`.
fn shown_bytes(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text += &shown(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, r"\x{byte:02x}");
        }
    }
    text
}

/// A key. For a long key, `#` and its hash, because only that is known.
pub(crate) fn key(key: &StoredKey) -> String {
    match key {
        StoredKey::Whole { key, .. } => whole(key),
        StoredKey::Hashed { hash, .. } => format!("#{}", shown(hash)),
        other => shown(&format!("{other:?}")),
    }
}

/// A key. A leading `#` is escaped, so that the key is not mistaken for a hash.
pub(crate) fn whole(key: &Key) -> String {
    let text = shown_bytes(key.as_bytes());
    match text.strip_prefix('#') {
        Some(rest) => format!(r"\x23{rest}"),
        None => text,
    }
}

/// The key with exactly the bytes of the argument.
pub(crate) fn key_of(argument: &OsStr) -> Key {
    Key::from(argument.as_encoded_bytes())
}

/// The part of a text that fits into `columns`. A text that is cut ends with `…`.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let width = |character: char| character.width().unwrap_or(0);
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |character: &char| {
        let fits = width(*character) <= left;
        left = left.saturating_sub(width(*character));
        fits
    };
    let mut fitted: String = text.chars().take_while(fits).collect();
    fitted.extend((columns > 0).then_some('…'));
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        for (text, expected) in [
            ("ann", "ann"),
            ("\x1b[2J", r"\x1b[2J"),
            ("\u{9b}2J\x7f", r"\x9b2J\x7f"),
            ("a\nb\r\t", r"a\x0ab\x0d\x09"),
            ("\u{202e}nna", r"\u{202e}nna"),
            ("a\u{200b}\u{2028}", r"a\u{200b}\u{2028}"),
            (r"a\x1b", r"a\\x1b"),
            ("日本", "日本"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn different_keys_are_shown_differently() {
        let shown = |bytes: &[u8]| key(&StoredKey::whole(bytes));
        assert_eq!(shown(b"a\xff\xfe"), r"a\xff\xfe");
        assert_eq!(shown(br"a\xff"), r"a\\xff");
        assert_eq!(shown(b"#12"), r"\x2312");
        assert_eq!(key(&StoredKey::hashed("12")), "#12");
    }

    #[test]
    fn a_text_fits_by_its_width() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 4, "日…"),
            ("a", 0, ""),
        ] {
            assert_eq!(fitted(text, columns), expected);
        }
    }
}
