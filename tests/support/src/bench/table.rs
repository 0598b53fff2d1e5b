//! Tables in Markdown, so that the output can be pasted unchanged.

use std::fmt;

/// A table that is printed at the end.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: impl Into<String>, head: &[&str]) -> Self {
        Self {
            title: title.into(),
            rows: vec![head.iter().map(ToString::to_string).collect()],
        }
    }

    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: ToString,
    {
        let cells = cells.into_iter().map(|cell| cell.to_string());
        self.rows.push(cells.collect());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = 0..self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        columns.map(width).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        writeln!(f, "\n{}\n", self.title)?;
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                let lines: Vec<_> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
                writeln!(f, "|{}|", lines.join("|"))?;
            }
        }
        Ok(())
    }
}

/// A figure as text: whole, or with three significant digits below 100; with commas between thousands.
pub fn figure(value: f64) -> String {
    match value.abs() {
        whole if whole.fract() == 0.0 => thousands(value as i64),
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => thousands(value.round() as i64),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match value < 0 {
        true => format!("-{text}"),
        false => text,
    }
}
