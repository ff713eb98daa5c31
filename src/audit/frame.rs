//! The frame around each event: what makes it a line.
//!
//! ```text
//! {"e":"use","id":"0190…","time":1700000000000042, … ,"n":4711,"crc":"89abcdef"}
//! ```
//!
//! - `n` numbers the lines of a journal, over all segments, without a gap.
//! - `crc` is the CRC-32 of everything before `,"crc"`, in lower-case hexadecimal. Every byte of a line is either covered
//!   by it or compared, so a changed byte is found wherever it is.

use std::cell::RefCell;
use std::io::Write as _;

use serde::Serialize;
use uuid::Uuid;

use super::event::Kind;

/// A serialized event without its closing brace, and the CRC-32 of it: everything that needs no lock.
#[derive(Clone, Copy)]
pub(super) struct Body<'a> {
    bytes: &'a [u8],
    crc: u32,
}

/// Bytes of `,"crc":"89abcdef"}`.
const CRC_LENGTH: usize = 18;

/// Serializes an event into this thread's buffer, and lends it.
pub(super) fn with_body<T>(event: &impl Serialize, then: impl FnOnce(Body<'_>) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        serde_json::to_writer(&mut *buffer, event).expect("events have string keys and a Vec takes every write");
        buffer.pop();
        then(Body { bytes: buffer, crc: crc32fast::hash(buffer) })
    })
}

impl Body<'_> {
    /// Appends the whole line under its number.
    pub(super) fn frame(self, n: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes);
        let tail = out.len();
        write!(out, ",\"n\":{n}").expect("a Vec takes every write");
        let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
        crc.update(&out[tail..]);
        writeln!(out, ",\"crc\":\"{:08x}\"}}", crc.finalize()).expect("a Vec takes every write");
    }
}

/// Checks a line's frame (without its newline), and gives its number.
pub(super) fn check(line: &[u8]) -> Option<u64> {
    let (covered, tail) = line.split_at_checked(line.len().checked_sub(CRC_LENGTH)?)?;
    let mut expected = [0; CRC_LENGTH];
    write!(&mut expected[..], ",\"crc\":\"{:08x}\"}}", crc32fast::hash(covered)).ok()?;
    (tail == expected).then_some(())?;
    number(covered).map(|(_, n)| n)
}

/// The body of a checked line, to be framed anew.
pub(super) fn body(line: &[u8]) -> Option<Body<'_>> {
    let (bytes, _) = number(&line[..line.len().checked_sub(CRC_LENGTH)?])?;
    Some(Body { bytes, crc: crc32fast::hash(bytes) })
}

fn number(covered: &[u8]) -> Option<(&[u8], u64)> {
    let at = covered.iter().rposition(|byte| *byte == b',')?;
    let digits = covered[at..].strip_prefix(b",\"n\":")?;
    Some((&covered[..at], std::str::from_utf8(digits).ok()?.parse().ok()?))
}

/// What a line says, by its beginning.
pub(super) fn kind(line: &[u8]) -> Option<Kind> {
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
pub(super) fn id(line: &[u8]) -> Option<u128> {
    let rest = line.strip_prefix(b"{\"e\":\"")?;
    let from = rest.iter().position(|byte| *byte == b',')?;
    let text = rest[from..].strip_prefix(b",\"id\":\"")?.get(..36)?;
    Uuid::try_parse_ascii(text).ok().map(|id| id.as_u128())
}

/// The whole lines in a piece of a segment, without their newlines, each with its offset in the piece.
pub(super) fn lines(piece: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    piece.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        let from = at;
        at += line.len();
        line.strip_suffix(b"\n").map(|line| (from, line))
    })
}

#[cfg(test)]
mod tests {
    use super::super::event::Open;
    use super::super::record::Outcome;
    use super::*;
    use crate::clock::Micros;

    #[test]
    fn a_line_carries_its_number_and_checksum() {
        let open = Open {
            segment: 0,
            number: None,
            key_id: None,
            user_id: None,
            org_id: None,
            id: Uuid::nil(),
            time: Micros(1),
        };
        let mut lines = Vec::new();
        with_body(&open.aborted(Outcome::Aborted), |body| body.frame(41, &mut lines));
        let line = lines.strip_suffix(b"\n").unwrap();
        assert_eq!(check(line), Some(41));
        assert_eq!(kind(line), Some(Kind::Outcome));
        assert_eq!(id(line), Some(0));
        let mut again = Vec::new();
        body(line).unwrap().frame(42, &mut again);
        assert_eq!(check(again.trim_ascii_end()), Some(42));
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.to_vec();
                changed[at] ^= 1 << bit;
                assert_eq!(check(&changed), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(check(b""), None);
        assert_eq!(check(&line[1..]), None);
    }

    #[test]
    fn only_whole_lines_are_given() {
        assert_eq!(lines(b"a\nbc\nd").collect::<Vec<_>>(), [(0, b"a".as_slice()), (2, b"bc")]);
    }
}
