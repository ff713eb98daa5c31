//! Lines of a segment, and what is known of a line without parsing its JSON.
//!
//! `e` is the first field of every event and `id` the second one of the events of a use, so both are found by their place.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The first line of a segment.
    Header,
    /// A use began.
    Use,
    /// A use ended.
    Outcome,
    /// A use that ended where it began.
    Record,
    /// The digest of an earlier segment.
    Seal,
}

/// What a line says, by its beginning.
pub(crate) fn kind(line: &[u8]) -> Option<Kind> {
    match line.strip_prefix(b"{\"e\":\"")? {
        [b'u', ..] => Some(Kind::Use),
        [b'o', ..] => Some(Kind::Outcome),
        [b'r', ..] => Some(Kind::Record),
        [b's', ..] => Some(Kind::Seal),
        [b'h', ..] => Some(Kind::Header),
        _ => None,
    }
}

/// The id in a line of a use, an outcome or a record, by its place.
pub(crate) fn id(line: &[u8]) -> Option<u128> {
    let rest = line.strip_prefix(b"{\"e\":\"")?;
    let from = rest.iter().position(|byte| *byte == b',')?;
    let text = rest[from..].strip_prefix(b",\"id\":\"")?.get(..36)?;
    Uuid::try_parse_ascii(text).ok().map(|id| id.as_u128())
}

/// The whole lines in a piece of a segment, without their newlines, each with its offset in the piece.
pub(crate) fn lines(piece: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    piece.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        let from = at;
        at += line.len();
        line.strip_suffix(b"\n").map(|line| (from, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_given() {
        assert_eq!(lines(b"a\nbc\nd").collect::<Vec<_>>(), [(0, b"a".as_slice()), (2, b"bc")]);
    }
}
