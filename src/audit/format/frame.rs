//! The frame around each event: a line number and a checksum.
//!
//! ```text
//! {"e":"use","id":"0190…","time":1700000000000042, … ,"n":4711,"crc":"89abcdef"}
//! ```
//!
//! - `n` numbers the lines of a journal, over all its segments, without a gap.
//! - `crc` is the CRC-32 of everything before `,"crc"`, in lower-case hexadecimal. Every byte of a line is either covered
//!   by it or compared with its only valid value, so a changed byte is found wherever it is.

use std::cell::RefCell;
use std::io::Write as _;

use serde::Serialize;

/// A serialized event without its closing brace, and its CRC-32. Computed before the journal's lock is taken.
#[derive(Clone, Copy)]
pub(crate) struct EventBody<'a> {
    bytes: &'a [u8],
    crc: u32,
}

/// Bytes of `,"crc":"89abcdef"}`.
const CRC_LENGTH: usize = 18;

/// Serializes an event into a buffer of this thread, and passes it to `then`.
pub(crate) fn with_serialized<T>(event: &impl Serialize, then: impl FnOnce(EventBody<'_>) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        serde_json::to_writer(&mut *buffer, event).expect("events have string keys and a Vec takes every write");
        // The closing brace comes after the frame's own fields.
        buffer.pop();
        then(EventBody { bytes: buffer, crc: crc32fast::hash(buffer) })
    })
}

impl EventBody<'_> {
    /// Appends the whole line, with its number and checksum.
    pub(crate) fn write_line(self, n: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes);
        let tail = out.len();
        write!(out, ",\"n\":{n}").expect("a Vec takes every write");
        // Continues the checksum of the event instead of hashing it again under the lock.
        let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
        crc.update(&out[tail..]);
        writeln!(out, ",\"crc\":\"{:08x}\"}}", crc.finalize()).expect("a Vec takes every write");
    }
}

/// Verifies the checksum of a line (without its newline) and returns its number; `None` when the line is damaged.
pub(crate) fn verify_line(line: &[u8]) -> Option<u64> {
    let (covered, tail) = line.split_at_checked(line.len().checked_sub(CRC_LENGTH)?)?;
    let mut expected = [0; CRC_LENGTH];
    write!(&mut expected[..], ",\"crc\":\"{:08x}\"}}", crc32fast::hash(covered)).ok()?;
    (tail == expected).then_some(())?;
    split_number(covered).map(|(_, n)| n)
}

/// Extracts the event of a verified line, to write it under another number.
pub(crate) fn extract_body(line: &[u8]) -> Option<EventBody<'_>> {
    let (bytes, _) = split_number(&line[..line.len().checked_sub(CRC_LENGTH)?])?;
    Some(EventBody { bytes, crc: crc32fast::hash(bytes) })
}

fn split_number(covered: &[u8]) -> Option<(&[u8], u64)> {
    let at = covered.iter().rposition(|byte| *byte == b',')?;
    let digits = covered[at..].strip_prefix(b",\"n\":")?;
    Some((&covered[..at], std::str::from_utf8(digits).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::line::{self, EventKind};

    #[test]
    fn line_carries_its_number_and_checksum() {
        let event = serde_json::json!({"e": "outcome", "id": uuid::Uuid::nil(), "outcome": "aborted"});
        let mut lines = Vec::new();
        with_serialized(&event, |body| body.write_line(41, &mut lines));
        let line = lines.strip_suffix(b"\n").unwrap();
        assert_eq!(verify_line(line), Some(41));
        assert_eq!(line::event_kind(line), Some(EventKind::Outcome));
        assert_eq!(line::event_id(line), Some(0));
        let mut again = Vec::new();
        extract_body(line).unwrap().write_line(42, &mut again);
        assert_eq!(verify_line(again.trim_ascii_end()), Some(42));
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.to_vec();
                changed[at] ^= 1 << bit;
                assert_eq!(verify_line(&changed), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(verify_line(b""), None);
        assert_eq!(verify_line(&line[1..]), None);
    }
}
