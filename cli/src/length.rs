//! Parses lengths of time in arguments.

use std::time::Duration;
use tower_semaphore::semaphore::MAX_PAUSE;

/// The units, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses the length of a pause: whole numbers with their units, as in `1h30m`.
///
/// # Errors
///
/// Returns the reason if the text has another form, or if the time is below 1 ms or above the longest pause.
pub(crate) fn parse_pause(text: &str) -> Result<Duration, &'static str> {
    let mut millis: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, unit, after) = part(rest);
        let (Ok(number), Some(unit)) = (number.parse::<u64>(), millis_of(unit)) else {
            return Err("expected numbers with the units d, h, m, s or ms, as in 1h30m");
        };
        millis = millis.saturating_add(number.saturating_mul(unit));
        rest = after;
    }
    let length = Duration::from_millis(millis);
    match length {
        Duration::ZERO => Err("expected at least 1ms"),
        _ if length > MAX_PAUSE => Err("expected at most 31d"),
        _ => Ok(length),
    }
}

/// The first number, its unit, and what follows.
fn part(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, rest) = text.split_at(digits.unwrap_or(text.len()));
    let letters = rest.find(|c: char| c.is_ascii_digit());
    let (unit, after) = rest.split_at(letters.unwrap_or(rest.len()));
    (number, unit, after)
}

fn millis_of(unit: &str) -> Option<u64> {
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    known.map(|(_, millis)| *millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_the_sum_of_its_parts() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
            ("31d", 2_678_400_000),
        ] {
            let length = Duration::from_millis(millis);
            assert_eq!(parse_pause(text), Ok(length), "{text}");
        }
    }

    #[test]
    fn another_form_or_length_is_an_error() {
        for text in [
            "",
            "0s",
            "0ms0s",
            "30",
            "s",
            "1h30",
            "1.5h",
            "-5s",
            "+5s",
            "5 s",
            "5S",
            "5min",
            "5s ",
            "31d1ms",
            "99999999999999999999s",
            "18446744073709551615d",
            "18446744073709551615ms1ms",
        ] {
            assert!(parse_pause(text).is_err(), "{text:?}");
        }
    }
}
