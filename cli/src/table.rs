//! Tables for people.

use crate::text::{key, shown};
use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets::NOTHING,
};
use std::time::{Duration, SystemTime};
use tower_semaphore::semaphore::{LimitInfo, PauseInfo, PermitInfo, Process, Usage};

/// How tables look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The number of the terminal's columns. `None` without a terminal: nothing is wrapped then.
    pub(crate) width: Option<u16>,
    pub(crate) has_colours: bool,
}

impl Style {
    /// Formats a heading.
    pub(crate) fn bold(self, text: &str) -> String {
        match self.has_colours {
            true => format!("\x1b[1m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    fn table(self, head: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_content_arrangement(match self.width {
            Some(_) => ContentArrangement::Dynamic,
            None => ContentArrangement::Disabled,
        });
        if let Some(width) = self.width {
            table.set_width(width);
        }
        match self.has_colours {
            true => table.enforce_styling(),
            false => table.force_no_tty(),
        };
        let bold = |name: &&str| Cell::new(name).add_attribute(Attribute::Bold);
        table.set_header(head.iter().map(bold));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table
    }
}

/// A table without the spaces at the ends of its lines.
fn lines(table: &Table) -> String {
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

fn number(number: &str) -> Cell {
    Cell::new(number).set_alignment(CellAlignment::Right)
}

/// The unit in which a length of time is shown: its length in seconds, and its name.
fn unit_of(time: Duration) -> (u64, &'static str) {
    match time.as_secs() {
        ..120 => (1, "s"),
        120..7_200 => (60, "min"),
        7_200..172_800 => (3_600, "h"),
        _ => (86_400, "d"),
    }
}

/// A length of time, in the largest unit in which it is at least 2.
pub(crate) fn age(time: Duration) -> String {
    let (seconds, unit) = unit_of(time);
    format!("{} {unit}", time.as_secs() / seconds)
}

/// The rest of a pause, in the unit of [`age`]. It is rounded up, so that 0 means that the pause is over.
pub(crate) fn left(now: SystemTime, until: SystemTime) -> String {
    let left = until.duration_since(now).unwrap_or_default();
    let (seconds, _) = unit_of(left);
    let units = left.as_millis().div_ceil(u128::from(seconds) * 1_000);
    age(Duration::from_secs(units as u64 * seconds))
}

/// The rest of a key's pause, if it is paused.
pub(crate) fn paused(pause: Option<&PauseInfo>, now: SystemTime) -> String {
    pause.map_or("-".to_owned(), |pause| left(now, pause.until))
}

/// The time between two instants, as [`age`] shows it.
fn span(earlier: SystemTime, later: SystemTime) -> String {
    age(later.duration_since(earlier).unwrap_or_default())
}

/// The permits of a key, and its waiters.
pub(crate) fn usage(name: &str, usage: &Usage, style: Style) -> String {
    let name = style.bold(name);
    let set = if usage.is_limit_set { " (set)" } else { "" };
    let limit = usage
        .limit
        .map_or("-".to_owned(), |limit| limit.to_string());
    let (held, waiting) = (usage.units, usage.waiting.len());
    let mut text = format!("{name}: limit {limit}{set}, held {held}, waiting {waiting}\n");
    for budget in &usage.budgets {
        let (spent, reserved) = (budget.spent, budget.reserved);
        let window = age(budget.window);
        text += &format!("budget of {window}: spent {spent}, reserved {reserved}\n");
    }
    if let Some(pause) = &usage.pause {
        let (since, left) = (span(pause.since, usage.now), left(usage.now, pause.until));
        let note = pause.note.as_deref().map(shown);
        let note = note.map_or(String::new(), |note| format!(": {note}"));
        text += &format!("paused {since} ago, ends in {left}{note}\n");
    }
    let ids = Ids::from_usage(usage);
    for (heads, infos) in [
        // LEASE is the time left of the lease, ALIVE the time after which a waiter without heartbeats no longer counts.
        (["PERMIT", "HELD FOR", "LEASE"], &usage.held),
        (["WAITER", "WAITS FOR", "ALIVE"], &usage.waiting),
    ] {
        if !infos.is_empty() {
            text += &permits(heads, infos, usage.now, &ids, style);
        }
    }
    text
}

fn permits(
    [kind, since, ends]: [&str; 3],
    permits: &[PermitInfo],
    now: SystemTime,
    ids: &Ids,
    style: Style,
) -> String {
    let mut table = style.table(&[kind, "UNITS", since, ends, "PROCESS", "LABEL"]);
    for info in permits {
        table.add_row([
            Cell::new(shown(ids.short(&info.id))),
            number(&info.weight.to_string()),
            number(&span(info.since, now)),
            number(&info.ends.map_or("-".to_owned(), |ends| span(now, ends))),
            Cell::new(process_text(&info.process)),
            Cell::new(label(info)),
        ]);
    }
    // The first four columns are never wrapped, so that an id can be copied in one piece.
    for at in 0..4 {
        let column = table.column_mut(at);
        column.map(|column| column.set_constraint(ColumnConstraint::ContentWidth));
    }
    format!("\n{}", lines(&table))
}

/// The host, the number and the name of a process, as far as they are known.
fn process_text(process: &Process) -> String {
    let pid = process.pid.map(|pid| pid.to_string());
    let parts = [&process.host, &pid, &process.name].into_iter().flatten();
    let parts: Vec<_> = parts.map(|part| shown(part)).collect();
    match parts.is_empty() {
        true => shown(&process.id),
        false => parts.join(" "),
    }
}

/// The label and the flow, if the permit has them. A reservation of a budget also shows the units that are settled so
/// far, and the budget's window.
fn label(info: &PermitInfo) -> String {
    let flow = info.flow.as_ref().map(|flow| format!("flow {}", key(flow)));
    let label = info.label.as_deref().map(shown);
    let budget = info.window.map(|window| {
        let settled = info.settled.unwrap_or_default();
        format!("settled {settled} (budget of {})", age(window))
    });
    let all: Vec<_> = label.into_iter().chain(flow).chain(budget).collect();
    all.join(", ")
}

pub(crate) fn processes(processes: &[Process], style: Style) -> String {
    let mut table = style.table(&["PROCESS", "HOST", "PID", "NAME", "VERSION"]);
    let known = |text: &Option<String>| Cell::new(text.as_deref().map_or("-".to_owned(), shown));
    for process in processes {
        table.add_row([
            Cell::new(shown(&process.id)),
            known(&process.host),
            number(&process.pid.map_or("-".to_owned(), |pid| pid.to_string())),
            known(&process.name),
            known(&process.version),
        ]);
    }
    lines(&table)
}

pub(crate) fn limits(limits: &[LimitInfo], now: SystemTime, style: Style) -> String {
    let mut table = style.table(&["POLICY", "KEY", "LIMIT", "SET", "NOTE"]);
    for info in limits {
        let key = info.key.as_ref().map_or("(all keys)".to_owned(), key);
        table.add_row([
            Cell::new(shown(info.policy.as_str())),
            Cell::new(key),
            number(&info.limit.to_string()),
            number(&format!("{} ago", span(info.since, now))),
            Cell::new(info.note.as_deref().map(shown).unwrap_or_default()),
        ]);
    }
    lines(&table)
}

/// The ids of a key's permits and waiters. Each id is shown in its shortest unique form.
///
/// An id consists of parts, separated by dots. The first two parts, the process and the permit's number in it, are
/// never used for a later permit. The other parts only distinguish units of the same permit. Every short form has at
/// least the first two, so an id copied from a screen never names another permit later.
pub(crate) struct Ids {
    sorted: Vec<String>,
}

/// The fewest parts of a short id.
const PARTS: usize = 2;

/// The short forms of an id, and the whole id at the end.
fn forms(id: &str) -> impl Iterator<Item = &str> {
    let dots = id.match_indices('.').map(|(at, _)| at);
    let ends = dots.skip(PARTS - 1).chain([id.len()]);
    ends.map(|end| &id[..end])
}

/// True if `form` is the id or one of its short forms.
fn is_form(form: &str, id: &str) -> bool {
    id.starts_with(form) && forms(id).any(|other| other == form)
}

impl Ids {
    pub(crate) fn from_usage(usage: &Usage) -> Self {
        let infos = usage.held.iter().chain(&usage.waiting);
        let mut sorted: Vec<_> = infos.map(|info| info.id.clone()).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// The shortest form that no other id has. Ids that begin alike are neighbours in the sorted list, so only
    /// neighbours are compared.
    pub(crate) fn short<'a>(&self, id: &'a str) -> &'a str {
        let at = self.sorted.partition_point(|other| **other < *id);
        let neighbours = [at.checked_sub(1), Some(at + 1)];
        let neighbours = neighbours.map(|at| self.sorted.get(at?));
        let is_alone = |form: &&str| !neighbours.iter().flatten().any(|id| is_form(form, id));
        forms(id).find(is_alone).unwrap_or(id)
    }

    /// The ids that a text may mean, as a whole id or as a short form.
    pub(crate) fn named<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let ids = self.sorted.iter().map(String::as_str);
        ids.filter(move |id| is_form(text, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;
    use tower_semaphore::semaphore::BudgetUsage;

    #[test]
    fn the_usage_of_a_key_shows_its_budgets_and_what_each_reservation_has_settled() {
        let minute = Duration::from_secs(60);
        // The permit has reserved 60 units of 100, and settled 20 of the 60.
        let mut info = PermitInfo::new("p.1", Process::new("p"), 60, 100, UNIX_EPOCH);
        (info.window, info.settled) = (Some(minute), Some(20));
        info.label = Some("GET /".to_owned());
        let mut key_usage = Usage::new(UNIX_EPOCH, 90, vec![info], Vec::new());
        key_usage.budgets = vec![BudgetUsage::new(minute, 50, 40)];
        let plain = Style {
            width: None,
            has_colours: false,
        };
        let text = usage("tokens ann", &key_usage, plain);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "tokens ann: limit 100, held 90, waiting 0");
        assert_eq!(lines[1], "budget of 60 s: spent 50, reserved 40");
        assert!(
            lines[4].ends_with("GET /, settled 20 (budget of 60 s)"),
            "{text}"
        );
    }

    #[test]
    fn an_id_is_shortened_to_the_first_parts_that_make_it_unique() {
        // Process, number of the permit, and the parts by which its units differ.
        let ids = ["p.1.5.1", "p.1.5.2", "p.12.5.1", "q.1", "other"].map(str::to_owned);
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let ids = Ids { sorted };
        for (id, short) in [
            ("p.1.5.1", "p.1.5.1"),
            ("p.12.5.1", "p.12"),
            ("q.1", "q.1"),
            ("other", "other"),
        ] {
            assert_eq!(ids.short(id), short);
        }
        for (text, count) in [
            ("p.1", 2),
            ("p.12", 1),
            ("p", 0),
            ("p.1.5.2", 1),
            ("", 0),
            ("othe", 0),
        ] {
            assert_eq!(ids.named(text).count(), count, "{text}");
        }
    }
}
