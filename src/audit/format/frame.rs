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

/// A serialized event without its closing brace, and the CRC-32 of it: everything that needs no lock.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
    crc: u32,
}

/// Bytes of `,"crc":"89abcdef"}`.
const CRC_LENGTH: usize = 18;

/// Serializes an event into this thread's buffer, and lends it.
pub(crate) fn with_body<T>(event: &impl Serialize, then: impl FnOnce(Body<'_>) -> T) -> T {
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
    pub(crate) fn frame(self, n: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes);
        let tail = out.len();
        write!(out, ",\"n\":{n}").expect("a Vec takes every write");
        let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
        crc.update(&out[tail..]);
        writeln!(out, ",\"crc\":\"{:08x}\"}}", crc.finalize()).expect("a Vec takes every write");
    }
}

/// Checks a line's frame (without its newline), and gives its number.
pub(crate) fn check(line: &[u8]) -> Option<u64> {
    let (covered, tail) = line.split_at_checked(line.len().checked_sub(CRC_LENGTH)?)?;
    let mut expected = [0; CRC_LENGTH];
    write!(&mut expected[..], ",\"crc\":\"{:08x}\"}}", crc32fast::hash(covered)).ok()?;
    (tail == expected).then_some(())?;
    number(covered).map(|(_, n)| n)
}

/// The body of a checked line, to be framed anew.
pub(crate) fn body(line: &[u8]) -> Option<Body<'_>> {
    let (bytes, _) = number(&line[..line.len().checked_sub(CRC_LENGTH)?])?;
    Some(Body { bytes, crc: crc32fast::hash(bytes) })
}

fn number(covered: &[u8]) -> Option<(&[u8], u64)> {
    let at = covered.iter().rposition(|byte| *byte == b',')?;
    let digits = covered[at..].strip_prefix(b",\"n\":")?;
    Some((&covered[..at], std::str::from_utf8(digits).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::line::{self, Kind};

    #[test]
    fn a_line_carries_its_number_and_checksum() {
        let event = serde_json::json!({"e": "outcome", "id": uuid::Uuid::nil(), "outcome": "aborted"});
        let mut lines = Vec::new();
        with_body(&event, |body| body.frame(41, &mut lines));
        let line = lines.strip_suffix(b"\n").unwrap();
        assert_eq!(check(line), Some(41));
        assert_eq!(line::kind(line), Some(Kind::Outcome));
        assert_eq!(line::id(line), Some(0));
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
}
