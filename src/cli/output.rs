//! Output of commands: lines, tables and JSON. Results go to standard output, notes to standard error.
//!
//! - Terminal injection: names and records are of users, and reach a terminal and logs. Characters that control it,
//!   or that do not show, are escaped in all output: as `\\u{1b}` in text, as `\\u001b` in JSON. So no text can
//!   hide or forge a line.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};

use serde::Serialize;

use domain::names;

pub(super) use ::control::management::policy_text::seconds;

/// A text with all characters escaped that do not show: in it, each is as in a string of Rust.
pub(super) struct Escaped<T>(pub(super) T);

/// A text of several lines: as [`Escaped`], but for the ends of its lines.
pub(super) struct EscapedLines<T>(pub(super) T);

/// Writes one line of the result.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{}", Escaped(text))
}

/// Writes the lines of a text that the program has made.
pub(super) fn lines(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{}", EscapedLines(text))
}

/// Writes a note for people to standard error. Does nothing when standard error is closed.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", Escaped(text));
}

/// Writes the lines of a note. Does nothing when standard error is closed.
pub(super) fn note_lines(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", EscapedLines(text));
}

/// Writes a value as one line of JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    writeln!(io::stdout(), "{}", json_text(value)?)
}

/// A value as JSON on one line, with characters escaped that do not show.
pub(super) fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.chars().any(names::is_refused) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !names::is_refused(c) {
            escaped.push(c);
            continue;
        }
        // They are in strings only: JSON itself has none of them.
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Ok(escaped)
}

/// Writes the records of a CSV file, which end with CR and LF (RFC 4180).
pub(super) fn csv(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    text.split_terminator("\r\n").try_for_each(|record| write!(out, "{}\r\n", Escaped(record)))
}

/// Writes a table of few cells; for no rows, the note `empty` instead.
pub(super) fn table(header: &[&'static str], rows: &[impl AsRef<[String]>], empty: &str) -> io::Result<()> {
    if rows.is_empty() {
        note(empty);
        return Ok(());
    }
    let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    // Escaped before they are measured.
    let escaped = |row: &[String]| row.iter().map(|cell| Escaped(cell).to_string()).collect();
    let rows: Vec<Vec<String>> =
        std::iter::once(&header[..]).chain(rows.iter().map(AsRef::as_ref)).map(escaped).collect();
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).filter_map(width).collect();
    rows.iter().try_for_each(|row| line(aligned(row.iter().map(String::as_str).zip(widths.iter().copied()))))
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
            out.write_all(json_text(item)?.as_bytes())?;
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

/// A value that may be absent, as a cell.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Values as texts.
pub(super) fn texts(values: impl IntoIterator<Item: ToString>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

/// Values in one text; a dash for none.
pub(super) fn joined(values: impl IntoIterator<Item: ToString>) -> String {
    or_dash(Some(texts(values).join(" ")).filter(|text| !text.is_empty()))
}

/// The JSON word of an enum value.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape { out: f, keeps_lines: false }, "{}", self.0)
    }
}

impl<T: Display> Display for EscapedLines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape { out: f, keeps_lines: true }, "{}", self.0)
    }
}

/// Escapes what is written through it.
struct Escape<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    keeps_lines: bool,
}

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_escaped = |c: char| names::is_refused(c) && !(self.keeps_lines && c == '\n');
        for part in text.split_inclusive(is_escaped) {
            match part.chars().next_back().filter(|c| is_escaped(*c)) {
                Some(c) => write!(self.out, "{}{}", &part[..part.len() - c.len_utf8()], c.escape_default())?,
                None => self.out.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Cells on one line, each as wide as its column.
pub(super) fn aligned<'a>(cells: impl Iterator<Item = (&'a str, usize)>) -> String {
    cells.map(|(cell, width)| format!("{cell:<width$}")).collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_cut_to_the_second() {
        assert_eq!(seconds("2026-11-20T21:08:00.123456Z"), "2026-11-20T21:08:00Z");
    }

    #[test]
    fn characters_that_do_not_show_are_escaped() {
        let hostile = "a\u{1b}[2J\r\n\u{9b}b\u{202e}c\u{2028}d\u{e0041}é\\";
        let escaped = "a\\u{1b}[2J\\r\\n\\u{9b}b\\u{202e}c\\u{2028}d\\u{e0041}é\\";
        assert_eq!(Escaped(hostile).to_string(), escaped);
        assert_eq!(EscapedLines("a\n\rb").to_string(), "a\n\\rb");
        let json = json_text(&hostile).unwrap();
        assert!(!json.chars().any(names::is_refused), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }
}
