//! Output of commands: lines, tables and JSON. Results go to standard output, notes to standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

/// Writes one line of the result.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Writes a note for people to standard error. Does nothing when standard error is closed.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a value as one line of JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    line(serde_json::to_string(value)?)
}

/// Writes a table with aligned columns; for no rows, the note `empty` instead.
pub(super) fn table(header: &[&'static str], rows: &[impl AsRef<[String]>], empty: &str) -> io::Result<()> {
    let mut table = Table::new(header);
    table.rows(rows)?;
    table.end(empty);
    Ok(())
}

/// Table that is written a page at a time.
pub(super) struct Table {
    header: Vec<String>,
    /// Widths of the columns, as of the pages so far.
    widths: Vec<usize>,
    is_empty: bool,
}

impl Table {
    pub(super) fn new(header: &[&str]) -> Self {
        let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
        let widths = header.iter().map(|title| title.chars().count()).collect();
        Self { header, widths, is_empty: true }
    }

    /// Writes more rows; before the first ones, the header. A column is as wide as its widest cell so far.
    pub(super) fn rows(&mut self, rows: &[impl AsRef<[String]>]) -> io::Result<()> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row.as_ref()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if !rows.is_empty() && std::mem::take(&mut self.is_empty) {
            line(aligned(&self.header, &self.widths))?;
        }
        rows.iter().try_for_each(|row| line(aligned(row.as_ref(), &self.widths)))
    }

    /// Writes the note `empty` when there was no row.
    pub(super) fn end(&self, empty: &str) {
        if self.is_empty {
            note(empty);
        }
    }
}

/// List that is written as one JSON object, `{"items":[…]}`, a page at a time.
#[derive(Default)]
pub(super) struct JsonList {
    is_begun: bool,
}

impl JsonList {
    /// Writes more items.
    pub(super) fn items<T: Serialize>(&mut self, items: &[T]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for item in items {
            out.write_all(if std::mem::replace(&mut self.is_begun, true) { b"," } else { b"{\"items\":[" })?;
            serde_json::to_writer(&mut out, item)?;
        }
        Ok(())
    }

    /// Writes the end of the list.
    pub(super) fn end(&self) -> io::Result<()> {
        line(if self.is_begun { "]}" } else { "{\"items\":[]}" })
    }
}

/// Writes names and values, one pair per line.
pub(super) fn fields(fields: &[(&str, String)]) -> io::Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    fields.iter().try_for_each(|(name, value)| line(format!("{name:<width$}  {value}").trim_end()))
}

/// An RFC 3339 time to the second: `2026-11-20T21:08:00Z`.
pub(super) fn seconds(time: impl Display) -> String {
    let time = time.to_string();
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time,
    }
}

/// A value that may be absent, as a cell.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The JSON word of an enum value.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_cut_to_the_second() {
        assert_eq!(seconds("2026-11-20T21:08:00.123456Z"), "2026-11-20T21:08:00Z");
    }

    #[test]
    fn column_width_counts_characters() {
        let widths = &[4, 3];
        assert_eq!(aligned(&["äb".into(), "c".into()], widths), "äb    c");
        assert_eq!(aligned(&["abcd".into(), String::new()], widths), "abcd");
    }
}
