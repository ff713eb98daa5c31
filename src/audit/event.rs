//! The events that the journal's lines are, and the frame around each.
//!
//! ```text
//! {"e":"use","id":"0190…","time":1700000000000042, … ,"n":4711,"crc":"89abcdef"}
//! ```
//!
//! - `e` is first and, in the events of a use, `id` second: readers that look for one id need not parse the rest.
//! - `n` numbers the lines of a journal, over all segments, without a gap.
//! - `crc` is the CRC-32 of everything before `,"crc"`, in lower-case hexadecimal. Every byte of a line is either covered
//!   by it or compared, so a changed byte is found wherever it is.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::escape::{self, visible};
use super::record::{End, Outcome, Record, Use};
use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
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

/// The first line of a segment: all that recovery needs to know of the earlier ones.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header<'a> {
    pub(super) e: Kind,
    pub(super) segment: u64,
    pub(super) created: Micros,
    /// The gateway that writes this segment, for the records in it.
    pub(super) gateway: Cow<'a, str>,
    /// Closed segments whose seal was not written yet.
    pub(super) unsealed: Cow<'a, [u64]>,
    /// The uses that earlier segments began and that were open when this one began.
    pub(super) open: Vec<Open>,
}

/// A use that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) id: Uuid,
    /// The segment that its use event is in, which must stay as long as it is open.
    #[serde(default)]
    pub(super) segment: u64,
    pub(super) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
}

/// The beginning of a use; with its end too, a `record`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UseEvent<'a> {
    pub(super) e: Kind,
    pub(super) id: Uuid,
    pub(super) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
    pub(super) auth_method: AuthMethod,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_agent: Option<Cow<'a, str>>,
    pub(super) action: Cow<'a, str>,
    pub(super) method: Cow<'a, str>,
    pub(super) path: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_bytes: Option<u64>,
}

/// The end of a use. It repeats whose use it was, so that lines can be filtered one by one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OutcomeEvent {
    pub(super) e: Kind,
    pub(super) id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
    pub(super) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    /// None when nobody was there to measure it: the gateway died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_bytes: Option<u64>,
}

/// The digest of a closed segment, so that a later change of it is found.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seal<'a> {
    pub(super) e: Kind,
    pub(super) segment: u64,
    pub(super) lines: u64,
    pub(super) sha256: Cow<'a, str>,
}

impl<'a> UseEvent<'a> {
    pub(super) fn opening(opening: &Use<'a>) -> Self {
        Self {
            e: Kind::Use,
            id: opening.id,
            time: opening.time,
            number: opening.number,
            key_id: opening.key_id,
            user_id: opening.user_id,
            org_id: opening.org_id,
            auth_method: opening.auth_method,
            ip: opening.ip,
            user_agent: opening.user_agent.map(|agent| visible(agent, escape::USER_AGENT_CAP)),
            action: visible(opening.action.as_bytes(), escape::ACTION_CAP),
            method: visible(opening.method.as_bytes(), escape::METHOD_CAP),
            path: visible(opening.path.as_bytes(), escape::PATH_CAP),
            outcome: None,
            status: None,
            duration_us: None,
            request_bytes: None,
            response_bytes: None,
        }
    }

    /// A use and its end in one.
    pub(super) fn whole(opening: &Use<'a>, end: End) -> Self {
        Self {
            e: Kind::Record,
            outcome: Some(end.outcome),
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..Self::opening(opening)
        }
    }

    /// The record this event, the outcome that ended it and its segment's gateway make.
    pub(super) fn joined(self, end: Option<&OutcomeEvent>, gateway: &str) -> Record {
        let ended = end.map(|end| end.outcome).or(self.outcome);
        Record {
            id: self.id,
            time: self.time.to_string(),
            key_id: self.key_id,
            user_id: self.user_id,
            org_id: self.org_id,
            auth_method: self.auth_method,
            ip: self.ip,
            user_agent: self.user_agent.map(Cow::into_owned),
            action: self.action.into_owned(),
            method: self.method.into_owned(),
            path: self.path.into_owned(),
            outcome: ended.unwrap_or(Outcome::InProgress),
            status: end.map_or(self.status, |end| end.status),
            duration_us: end.map_or(self.duration_us, |end| end.duration_us),
            request_bytes: end.map_or(self.request_bytes, |end| end.request_bytes),
            response_bytes: end.map_or(self.response_bytes, |end| end.response_bytes),
            gateway: gateway.to_owned(),
        }
    }
}

impl Open {
    /// The use that an opening begins; its segment is set when its line is appended.
    pub(super) fn of(opening: &Use<'_>) -> Self {
        let Use { id, time, number, key_id, user_id, org_id, .. } = *opening;
        Self { id, segment: 0, time, number, key_id, user_id, org_id }
    }

    pub(super) fn ended(&self, end: End) -> OutcomeEvent {
        OutcomeEvent {
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..self.aborted(end.outcome)
        }
    }

    /// The end of a use of which nothing is known but that it is over.
    pub(super) fn aborted(&self, outcome: Outcome) -> OutcomeEvent {
        OutcomeEvent {
            e: Kind::Outcome,
            id: self.id,
            key_id: self.key_id,
            user_id: self.user_id,
            org_id: self.org_id,
            outcome,
            status: None,
            duration_us: None,
            request_bytes: None,
            response_bytes: None,
        }
    }
}

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
    use super::*;

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
