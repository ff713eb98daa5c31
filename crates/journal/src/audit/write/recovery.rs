//! Recovery: finds the end of a journal after its gateway ended, in whatever way.
//!
//! - The last segment is read, and of those before it the headers that list uses which may still be open.
//! - Segments are read in pieces: memory depends on the uses that are open, not on the size of a segment.
//! - What is behind the last good line is cut off when a crash can have left it, and set aside otherwise
//!   ([`damaged_tail`]). Damage before it is left as it is, for `audit verify` to report.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::active_segment::RecoveredSegment;
use super::pending::{PendingLines, SegmentState};
use super::{compression, damaged_tail};
use crate::audit::format::event::OpenUse;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::open_uses::{self, OpenUses};
use crate::audit::format::segment_event::{Damaged, Expired, Seal, SegmentHeader};
use crate::audit::format::{decode, frame, pieces, segment};

/// The state in which a journal was left.
#[derive(Debug, Default)]
pub struct RecoveredJournal {
    /// The last segment.
    pub(crate) segment: RecoveredSegment,
    /// The gateway that wrote the last segment.
    pub(crate) gateway: String,
    /// The number of the next line.
    pub(crate) next: u64,
    pub(crate) open: FxHashMap<u128, OpenUse>,
    /// Uses that a header lists, and that have ended in the last segment.
    pub(crate) ended: Vec<Uuid>,
    pub(crate) unsealed: Vec<u64>,
    /// The first segment that was not removed by retention.
    pub(crate) first: u64,
    /// Damage at its end, whose lines were set aside.
    pub(crate) damaged: Vec<Damaged<'static>>,
    /// Damaged lines before the last good one, in the last segment.
    damaged_lines: u64,
}

/// Finds the end of the journal in a directory, and removes what is behind it.
pub(crate) fn recover(directory: &Path) -> io::Result<RecoveredJournal> {
    compression::remove_leftovers(directory)?;
    let segments = segment::list_files(directory)?;
    let mut damaged = Vec::new();
    for last in segments.iter().rev() {
        // It is compressed only when later segments are lost, as after a power failure.
        compression::expand_segment(directory, last.number)?;
        let file = OpenOptions::new().read(true).write(true).open(segment::path(directory, last.number))?;
        // A crash while a segment was created may leave one without a good line: the one before it is the last.
        let mut found = scan_segment(directory, last.number, &file)?;
        damaged.extend(damaged_tail::clear(directory, last.number, &file, found.segment.length)?);
        if found.segment.length == 0 {
            continue;
        }
        if found.damaged_lines > 0 {
            tracing::error!(lines = found.damaged_lines, segment = last.number, path = %directory.display(),
                "lines of the audit journal are damaged, and stay where they are; check the disk, and run `keygate \
                 audit verify`");
        }
        found.segment.file = Some(file);
        if found.first == 0 {
            // The header is damaged: what is there counts as the beginning.
            found.first = segments[0].number;
        }
        found.damaged = damaged;
        return Ok(found);
    }
    Ok(RecoveredJournal { damaged, ..RecoveredJournal::of_new_journal() })
}

/// Reads the state from the last segment; its length is 0 when the segment has no good line.
fn scan_segment(directory: &Path, number: u64, file: &File) -> io::Result<RecoveredJournal> {
    let mut scan = SegmentScan::new(number);
    if let Some(header) = open_uses::read_header(directory, number)? {
        scan.found.open = OpenUses::at(directory, &header)?.uses;
    }
    pieces::for_each_line(|out, at| file.read_at(out, at), |at, line| scan.read_line(at, line))?;
    scan.finish(|at, length| pieces::read_line(file, at, length))
}

/// Scan of the last segment of a journal, without I/O: finds its end, and what is open there. The simulation of many
/// gateways gives it the lines of disks in virtual time.
#[derive(Debug)]
pub struct SegmentScan {
    found: RecoveredJournal,
    /// Offsets and lengths of the beginnings that have no outcome. Most uses have ended by the end of the segment: of
    /// the others, the lines are read again and parsed.
    begun: FxHashMap<u128, (u64, usize)>,
    damaged_lines: u64,
}

impl SegmentScan {
    /// Begins with the segment of this number.
    pub fn new(number: u64) -> Self {
        let segment = RecoveredSegment { number, ..RecoveredSegment::default() };
        let found = RecoveredJournal { segment, ..RecoveredJournal::default() };
        Self { found, begun: FxHashMap::default(), damaged_lines: 0 }
    }

    /// Reads a whole line, without its newline, at its offset.
    pub fn read_line(&mut self, at: u64, line: &[u8]) {
        let Self { found, begun, damaged_lines } = self;
        // Damaged lines are skipped; a good line after them proves that they are no torn tail.
        let Some(n) = frame::verify_line(line) else {
            *damaged_lines += 1;
            return;
        };
        found.next = n + 1;
        found.damaged_lines = *damaged_lines;
        found.segment.length = at + line.len() as u64 + 1;
        found.segment.has_events |= at > 0;
        match (line::event_kind(line), line::event_id(line)) {
            (Some(EventKind::Use | EventKind::Carried), Some(id)) => drop(begun.insert(id, (at, line.len()))),
            (Some(EventKind::Outcome), Some(id)) => {
                begun.remove(&id);
                found.ended.extend(found.open.remove(&id).map(|open| open.id));
            }
            (Some(EventKind::Header), _) => {
                found.segment.header_length = found.segment.length;
                open_uses::parse_header(line).into_iter().for_each(|header| found.apply_header(header));
            }
            (Some(EventKind::Seal), _) => found.apply_seal(line),
            (Some(EventKind::Expired), _) => found.apply_expired(line),
            _ => {}
        }
    }

    /// The state after the last line. `read_line` reads the line of this length at an offset.
    ///
    /// # Errors
    /// If a line cannot be read.
    pub fn finish(mut self, read_line: impl FnMut(u64, usize) -> io::Result<Vec<u8>>) -> io::Result<RecoveredJournal> {
        self.found.add_begun(self.begun, read_line)?;
        Ok(self.found)
    }
}

impl RecoveredJournal {
    /// Length of the segment up to the end of its last good line; 0 when it has none.
    pub fn length(&self) -> u64 {
        self.segment.length
    }

    /// The state of a journal without a good line.
    pub fn of_new_journal() -> Self {
        Self { next: 1, first: 1, ..Self::default() }
    }

    /// The pending lines of the journal that is continued behind the segment of this number, or in it: none yet.
    pub fn into_pending(self, last_segment: u64) -> PendingLines {
        let segments = SegmentState { current: last_segment, unsealed: self.unsealed, first: self.first };
        PendingLines::new(segments, self.next, self.open, self.ended)
    }

    /// Adds the uses whose lines are at these offsets, and have these lengths.
    fn add_begun(
        &mut self,
        begun: FxHashMap<u128, (u64, usize)>,
        mut read_line: impl FnMut(u64, usize) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        for (id, (at, length)) in begun {
            let line = read_line(at, length)?;
            if let Some(begun) = decode::use_event(&line) {
                let listed_by = self.open.get(&id).map_or(0, |listed| listed.listed_by);
                self.open.insert(id, OpenUse { listed_by, ..OpenUse::from_event(&begun, self.segment.number) });
            }
        }
        Ok(())
    }

    fn apply_header(&mut self, header: SegmentHeader<'_>) {
        self.segment.created = header.created;
        self.gateway = header.gateway.into_owned();
        self.unsealed = header.unsealed.into_owned();
        self.first = header.first.min(self.segment.number);
    }

    fn apply_seal(&mut self, line: &[u8]) {
        if let Ok(seal) = serde_json::from_slice::<Seal<'_>>(line) {
            self.unsealed.retain(|number| *number != seal.segment);
        }
    }

    fn apply_expired(&mut self, line: &[u8]) {
        if let Ok(expired) = serde_json::from_slice::<Expired<'_>>(line) {
            self.first = self.first.max(expired.segment.saturating_add(1).min(self.segment.number));
        }
    }
}
