//! Writes JSON: text, and the usage of a key for operators.

use crate::semaphore::{BudgetUsage, PauseInfo, PermitInfo, Process, StoredKey, Usage};
use std::{
    fmt::{self, Display, Write},
    time::{SystemTime, UNIX_EPOCH},
};

impl Usage {
    /// The usage as a JSON object, for a custom route. Times are milliseconds of Unix time by the store's clock.
    /// Unknown values are `null`:
    ///
    /// ```json
    /// {"now":1795345200123,"limit":5,"limit_set":false,"units":1,"budgets":[],
    ///  "held":[{"id":"17","process":{"id":"web","host":"web-1","pid":4711,"name":"market"},
    ///           "label":"GET /market/export","flow":null,"weight":1,"limit":5,
    ///           "window_ms":null,"settled":null,
    ///           "since":1795345190100,"ends":1795345203456}],
    ///  "waiting":[],
    ///  "pause":{"since":1795345199000,"until":1795345229000,"note":"429 from the upstream"}}
    /// ```
    ///
    /// `pause` is `null` unless the key is [paused](crate::Operate::pause). `waiting` is in the order in which claims
    /// will be served. `budgets` has a `window_ms`, `spent` and `reserved` for each
    /// [budget](crate::Claim::with_window). A flow is text, with bytes that are not UTF-8 replaced. A long flow is `#`
    /// and the hash that the store has.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::UNIX_EPOCH;
    /// use tower_semaphore::semaphore::Usage;
    ///
    /// let nothing = Usage::new(UNIX_EPOCH, 0, vec![], vec![]);
    /// let json = r#"{"now":0,"limit":null,"limit_set":false,"units":0,"budgets":[],"held":[],"waiting":[],"pause":null}"#;
    /// assert_eq!(nothing.to_json(), json);
    /// ```
    pub fn to_json(&self) -> String {
        let (now, limit) = (millis(self.now), or_null(self.limit));
        let (held, waiting) = (permits(&self.held), permits(&self.waiting));
        let (units, set) = (self.units, self.is_limit_set);
        let budgets: Vec<_> = self.budgets.iter().map(budget).collect();
        let budgets = budgets.join(",");
        let pause = or_null(self.pause.as_ref().map(pause));
        format!(
            r#"{{"now":{now},"limit":{limit},"limit_set":{set},"units":{units},"budgets":[{budgets}],"held":{held},"waiting":{waiting},"pause":{pause}}}"#
        )
    }
}

fn budget(budget: &BudgetUsage) -> String {
    let BudgetUsage {
        window,
        spent,
        reserved,
    } = budget;
    let window = window.as_millis();
    format!(r#"{{"window_ms":{window},"spent":{spent},"reserved":{reserved}}}"#)
}

fn permits(permits: &[PermitInfo]) -> String {
    let permits: Vec<_> = permits.iter().map(permit).collect();
    format!("[{}]", permits.join(","))
}

fn permit(permit: &PermitInfo) -> String {
    let PermitInfo { weight, limit, .. } = permit;
    let (id, label) = (
        JsonString(&permit.id),
        or_null(permit.label.as_deref().map(JsonString)),
    );
    let (process, since) = (process(&permit.process), millis(permit.since));
    let ends = or_null(permit.ends.map(millis));
    let flow = permit.flow.as_ref().map(flow_text);
    let flow = or_null(flow.as_deref().map(JsonString));
    let window = or_null(permit.window.map(|window| window.as_millis()));
    let settled = or_null(permit.settled);
    format!(
        r#"{{"id":{id},"process":{process},"label":{label},"flow":{flow},"weight":{weight},"limit":{limit},"window_ms":{window},"settled":{settled},"since":{since},"ends":{ends}}}"#
    )
}

fn pause(pause: &PauseInfo) -> String {
    let (since, until) = (millis(pause.since), millis(pause.until));
    let note = or_null(pause.note.as_deref().map(JsonString));
    format!(r#"{{"since":{since},"until":{until},"note":{note}}}"#)
}

fn flow_text(flow: &StoredKey) -> String {
    match flow {
        StoredKey::Whole { key } => String::from_utf8_lossy(key.as_bytes()).into_owned(),
        StoredKey::Hashed { hash } => format!("#{hash}"),
    }
}

fn process(process: &Process) -> String {
    let known = |value: &Option<String>| or_null(value.as_deref().map(JsonString));
    let (id, pid) = (JsonString(&process.id), or_null(process.pid));
    let (host, name) = (known(&process.host), known(&process.name));
    format!(r#"{{"id":{id},"host":{host},"pid":{pid},"name":{name}}}"#)
}

fn or_null(value: Option<impl Display>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn millis(time: SystemTime) -> u128 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_millis()
}

/// Displays text as a JSON string, quotes included. Characters that a page might take for markup are escaped too.
pub(crate) struct JsonString<'a>(pub(crate) &'a str);

impl Display for JsonString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escape(f, character)?,
                character if character.is_control() => escape(f, character)?,
                character => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

fn escape(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    write!(f, "\\u{:04x}", u32::from(character))
}
