//! Lines of a segment, and the parts of a line that are known without parsing its JSON.
//!
//! In JSON, `e` is the first field of every event and `id` the second one of the events of a use; a compact line begins
//! with a letter for the kind, a tab and the id. So both are found by position.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id_text;

/// Kind of the event in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// The first line of a segment.
    Header,
    /// A use, or a change by management, began.
    Use,
    /// A use ended.
    Outcome,
    /// A use that ended where it began.
    Record,
    /// The digest of an earlier segment.
    Seal,
    /// The beginning of an open use, repeated because the segment that holds it is about to be removed.
    Carried,
    /// The removal of a segment.
    Expired,
    /// Lines at the end of the journal that a start has found damaged, and has set aside.
    Damaged,
}

/// Reads the kind of the event in a line from its first letter; `None` when the line is no event.
pub(crate) fn event_kind(line: &[u8]) -> Option<EventKind> {
    match line {
        [b'u' | b'c', b'\t', ..] => return Some(EventKind::Use),
        [b'o', b'\t', ..] => return Some(EventKind::Outcome),
        [b'r', b'\t', ..] => return Some(EventKind::Record),
        _ => {}
    }
    match line.strip_prefix(b"{\"e\":\"")? {
        [b'r', ..] => Some(EventKind::Record),
        [b's', ..] => Some(EventKind::Seal),
        [b'h', ..] => Some(EventKind::Header),
        [b'c', ..] => Some(EventKind::Carried),
        [b'e', ..] => Some(EventKind::Expired),
        [b'd', ..] => Some(EventKind::Damaged),
        _ => None,
    }
}

/// Reads the id in the line of a use, an outcome or a record.
pub(crate) fn event_id(line: &[u8]) -> Option<u128> {
    if let [b'u' | b'c' | b'o' | b'r', b'\t', rest @ ..] = line {
        return id_text::decode(rest.get(..id_text::LENGTH)?);
    }
    let rest = line.strip_prefix(b"{\"e\":\"")?;
    let from = rest.iter().position(|byte| *byte == b',')?;
    let text = rest[from..].strip_prefix(b",\"id\":\"")?.get(..36)?;
    Uuid::try_parse_ascii(text).ok().map(|id| id.as_u128())
}

/// Splits a piece of a segment into its whole lines, without their newlines, each with its offset in the piece.
pub(crate) fn split_lines(piece: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut from = 0;
    memchr::memchr_iter(b'\n', piece).map(move |newline| {
        let line = (from, &piece[from..newline]);
        from = newline + 1;
        line
    })
}

/// The length of a piece without an unfinished last line.
pub(crate) fn whole_length(piece: &[u8]) -> usize {
    memchr::memrchr(b'\n', piece).map_or(0, |newline| newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_last_line_is_left_out() {
        assert_eq!(split_lines(b"a\nbc\nd").collect::<Vec<_>>(), [(0, b"a".as_slice()), (2, b"bc")]);
        assert_eq!(whole_length(b"a\nbc\nd"), 5);
    }
}
