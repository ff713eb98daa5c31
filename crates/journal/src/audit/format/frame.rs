//! The frame around each event: a line number and a checksum.
//!
//! ```text
//! {"e":"seal","segment":3, … ,"n":4711,"crc":"89abcdef"}
//! u⇥AZ…⇥42⇥ … ⇥4711⇥89abcdef
//! ```
//!
//! - `n` numbers the lines of a journal, over all its segments, without a gap.
//! - `crc` is the CRC-32 of everything before `,"crc"`, in lower-case hexadecimal. Every byte of a line is either
//!   covered by it or compared with its only valid value, so a changed byte is found wherever it is.
//! - A compact line ends in the same two values, each after a tab; its checksum covers everything before the last tab.

use std::cell::RefCell;

use serde::Serialize;

/// An event that becomes a line when it gets its number.
pub trait Line {
    /// Appends the whole line, with its number, checksum and newline.
    fn write_line(&self, n: u64, out: &mut Vec<u8>);
}

/// An event without its frame, and its CRC-32. Computed before the journal's lock is taken.
#[derive(Clone, Copy)]
pub(crate) struct EventBody<'a> {
    bytes: &'a [u8],
    crc: u32,
}

/// Bytes of `,"crc":"89abcdef"}`.
const CRC_LENGTH: usize = 18;
/// Bytes of `⇥89abcdef`.
const COMPACT_CRC_LENGTH: usize = 9;

/// Serializes an event as JSON into a buffer of this thread, and passes it to `then`.
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

impl Line for EventBody<'_> {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.bytes);
        if !is_json(self.bytes) {
            return finish_compact(out, start, n);
        }
        let tail = out.len();
        out.extend_from_slice(b",\"n\":");
        push_decimal(out, n);
        // Continues the checksum of the event instead of hashing it again under the lock.
        let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
        crc.update(&out[tail..]);
        out.extend_from_slice(&json_tail(crc.finalize()));
        out.push(b'\n');
    }
}

/// Completes the compact line that begins at `start`.
pub(crate) fn finish_compact(out: &mut Vec<u8>, start: usize, n: u64) {
    out.push(b'\t');
    push_decimal(out, n);
    let crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&compact_tail(crc));
    out.push(b'\n');
}

/// Appends a number in decimal digits.
pub(crate) fn push_decimal(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// True for a line, or a body, in JSON; false for a compact one.
pub(crate) fn is_json(line: &[u8]) -> bool {
    line.first() == Some(&b'{')
}

/// Verifies the checksum of a line (without its newline) and returns its number; `None` when the line is damaged.
pub(crate) fn verify_line(line: &[u8]) -> Option<u64> {
    let (covered, tail) = split_crc(line)?;
    let crc = crc32fast::hash(covered);
    let is_valid = if is_json(line) { tail == json_tail(crc) } else { tail == compact_tail(crc) };
    is_valid.then(|| split_number(covered))?.map(|(_, n)| n)
}

/// Extracts the event of a verified line, to write it under another number.
pub(crate) fn extract_body(line: &[u8]) -> Option<EventBody<'_>> {
    let bytes = body_of(line)?;
    Some(EventBody { bytes, crc: crc32fast::hash(bytes) })
}

/// The event of a line, without the frame; in JSON without its closing brace.
pub(crate) fn body_of(line: &[u8]) -> Option<&[u8]> {
    split_crc(line).and_then(|(covered, _)| split_number(covered)).map(|(body, _)| body)
}

fn split_crc(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = if is_json(line) { CRC_LENGTH } else { COMPACT_CRC_LENGTH };
    line.split_at_checked(line.len().checked_sub(length)?)
}

fn split_number(covered: &[u8]) -> Option<(&[u8], u64)> {
    let (separator, prefix): (u8, &[u8]) = if is_json(covered) { (b',', b",\"n\":") } else { (b'\t', b"\t") };
    let at = covered.iter().rposition(|byte| *byte == separator)?;
    let digits = covered[at..].strip_prefix(prefix)?;
    Some((&covered[..at], std::str::from_utf8(digits).ok()?.parse().ok()?))
}

fn json_tail(crc: u32) -> [u8; CRC_LENGTH] {
    let mut tail = *b",\"crc\":\"........\"}";
    tail[8..16].copy_from_slice(&hexadecimal(crc));
    tail
}

pub(crate) fn compact_tail(crc: u32) -> [u8; COMPACT_CRC_LENGTH] {
    let mut tail = *b"\t........";
    tail[1..].copy_from_slice(&hexadecimal(crc));
    tail
}

fn hexadecimal(crc: u32) -> [u8; 8] {
    std::array::from_fn(|i| b"0123456789abcdef"[(crc >> (28 - 4 * i) & 0xf) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::line::{self, EventKind};

    #[test]
    fn json_line_carries_its_number_and_checksum() {
        let event = serde_json::json!({"e": "record", "id": uuid::Uuid::nil(), "outcome": "aborted"});
        let mut lines = Vec::new();
        with_serialized(&event, |body| body.write_line(41, &mut lines));
        assert!(lines.ends_with(b"\"}\n"));
        check_frame(&lines, EventKind::Record);
    }

    #[test]
    fn compact_line_carries_its_number_and_checksum() {
        let mut lines = b"o\tAAAAAAAAAAAAAAAAAAAAAA\taborted".to_vec();
        finish_compact(&mut lines, 0, 41);
        assert!(lines.starts_with(b"o\tAAAAAAAAAAAAAAAAAAAAAA\taborted\t41\t"));
        check_frame(&lines, EventKind::Outcome);
    }

    /// Checks a line of this kind with the number 41.
    fn check_frame(lines: &[u8], kind: EventKind) {
        let line = lines.strip_suffix(b"\n").unwrap();
        assert_eq!(verify_line(line), Some(41));
        assert_eq!(line::event_kind(line), Some(kind));
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
