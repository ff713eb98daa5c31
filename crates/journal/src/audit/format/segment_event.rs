//! Lines about segments: the header that begins one, the seal that closes it, and the record of its removal.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::event::OpenUse;
use super::line::EventKind;
use domain::clock::Micros;
use domain::counted::Counted;

/// The first line of a segment: with the headers before it, all that recovery needs of the earlier segments.
///
/// Each open use is listed once, by the segment after the one that holds its beginning, and once more when it has
/// ended: a header is small however many uses stay open. The open uses follow from the headers since `oldest`; see
/// [`super::open_uses`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SegmentHeader<'a> {
    pub(crate) e: EventKind,
    /// Version of the journal's format: readers look for it behind `e` ([`super::version`]).
    pub(crate) version: u8,
    pub(crate) segment: u64,
    pub(crate) created: Micros,
    /// Name of the gateway that writes this segment, for the records in it.
    pub(crate) gateway: Cow<'a, str>,
    /// Closed segments whose seals are not written yet.
    pub(crate) unsealed: Cow<'a, [u64]>,
    /// The first segment that retention has not removed.
    pub(crate) first: u64,
    /// The oldest segment that holds the beginning of a use that is open where this one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<u64>,
    /// Uses whose beginnings are in the segment before, and that are open where this one begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) began: Vec<OpenUse>,
    /// Uses that an earlier header lists, and that have ended in the segment before.
    #[serde(default, skip_serializing_if = "<[Uuid]>::is_empty")]
    pub(crate) ended: Cow<'a, [Uuid]>,
}

/// The digest of a closed segment, by which a later change of it is detected.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal<'a> {
    pub(crate) e: EventKind,
    pub(crate) segment: u64,
    pub(crate) lines: u64,
    pub(crate) sha256: Cow<'a, str>,
    /// The digest is that of the compressed file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) compressed: bool,
}

/// A checkpoint, as the seal of segment 0: of the journal as a whole up to a line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointSeal<'a> {
    pub(crate) e: EventKind,
    pub(crate) segment: u64,
    /// Lines that it covers, of all segments.
    pub(crate) lines: u64,
    /// Root of the tree over them, in hexadecimal.
    pub(crate) sha256: Cow<'a, str>,
    /// Time at which it was signed.
    pub(crate) time: Micros,
    /// The signed note.
    pub(crate) checkpoint: Cow<'a, str>,
}

impl<'a> CheckpointSeal<'a> {
    pub(crate) fn new(lines: u64, root: &[u8; 32], time: Micros, note: &'a str) -> Self {
        let sha256 = HEXLOWER.encode(root).into();
        Self { e: EventKind::Seal, segment: 0, lines, sha256, time, checkpoint: note.into() }
    }
}

/// The removal of a segment by retention. It is written before the segment is removed, so that a missing segment
/// without it was removed by something else.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expired<'a> {
    pub(crate) e: EventKind,
    pub(crate) time: Micros,
    pub(crate) segment: u64,
    pub(crate) reason: ExpiryReason,
    /// Lines and digest of the segment, as in its seal; they identify an archived copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Cow<'a, str>>,
    /// The number of the first line after the segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}

/// The reason why a segment is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExpiryReason {
    /// It was older than the configured age.
    Age,
    /// All segments together were larger than the configured size.
    Size,
    /// All segments together were larger than the size of the volume allows.
    Volume,
    /// It was missing when its turn came: something other than retention has removed it.
    Missing,
}

/// Damage at the end of a segment that a start has found: it is no torn write, so it was on the disk and has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Damaged<'a> {
    pub(crate) e: EventKind,
    /// Time of the start.
    pub(crate) time: Micros,
    pub(crate) segment: u64,
    /// Offset in the segment from which it was damaged.
    pub(crate) offset: u64,
    /// Bytes that were set aside.
    pub(crate) bytes: u64,
    /// Line feeds in them.
    pub(crate) lines: u64,
    /// Bytes that the last gateway wrote behind `offset` before it ended, when they are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<u64>,
    /// Name of the file in which they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<Cow<'a, str>>,
    /// They are lines that a process wrote after it had handed the journal over in this segment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) handed_over: bool,
}

impl std::fmt::Display for Damaged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { segment, offset, bytes, lines, written, file, handed_over, .. } = self;
        if *handed_over {
            write!(f, "lines of the process before were damaged when it had handed over in segment {segment}")?;
        } else {
            write!(f, "the end of segment {segment} was damaged from byte {offset} on")?;
        }
        if let Some(file) = file {
            write!(f, ": {} in {} set aside in {file}", Counted(*bytes, "byte"), Counted(*lines, "line"))?;
        }
        written.map_or(Ok(()), |written| write!(f, "; it had {} there before", Counted(written, "byte")))
    }
}

impl Expired<'_> {
    /// The removal of a segment, of whose content nothing is said.
    pub(crate) fn new(segment: u64, reason: ExpiryReason, time: Micros) -> Self {
        Self { e: EventKind::Expired, time, segment, reason, lines: None, sha256: None, next: None }
    }
}
