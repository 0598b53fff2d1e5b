//! A line of `MONITOR`: `1700000000.000000 [0 lua] "ZADD" "key" "1" "member"`.

/// A command as `MONITOR` shows it.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Microseconds since 1970, taken just after the command ran.
    pub(super) at: i64,
    /// Whether a script ran it.
    pub(super) is_inside: bool,
    words: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let (head, words) = line.split_once("] ")?;
        let (time, source) = head.split_once(" [")?;
        let (seconds, micros) = time.split_once('.')?;
        Some(Self {
            at: seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?,
            is_inside: source.ends_with("lua"),
            words: words.trim_matches('"'),
        })
    }

    /// Name and arguments. No argument of the library's has a quote, so none is escaped.
    pub(super) fn words(&self) -> Vec<&'a str> {
        self.words.split("\" \"").collect()
    }

    pub(super) fn has(&self, text: &str) -> bool {
        self.words.contains(text)
    }
}
