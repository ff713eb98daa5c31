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
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]], empty: &str) -> io::Result<()> {
    if rows.is_empty() {
        note(empty);
        return Ok(());
    }
    let mut widths = header.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    line(aligned(&header.map(str::to_owned), widths))?;
    rows.iter().try_for_each(|row| line(aligned(row, widths)))
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

fn aligned<const N: usize>(cells: &[String; N], widths: [usize; N]) -> String {
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
        let widths = [4, 3];
        assert_eq!(aligned(&["äb".into(), "c".into()], widths), "äb    c");
        assert_eq!(aligned(&["abcd".into(), String::new()], widths), "abcd");
    }
}
