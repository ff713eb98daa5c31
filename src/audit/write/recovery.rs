//! Recovery: finds the end of a journal after its gateway ended, in whatever way.
//!
//! The last segment suffices: its header lists the uses that were open when it began. A torn tail (everything after the
//! last good line) is cut off; damage before it is left as it is, for `audit verify` to report.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::audit::format::event::{OpenUse, Seal, SegmentHeader};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::{frame, segment};
use crate::clock::Micros;

/// The state in which a journal was left.
#[derive(Debug, Default)]
pub(crate) struct RecoveredJournal {
    /// The last segment, open for writing; `None` in a new journal.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    /// Bytes up to the end of the last good line.
    pub(crate) length: u64,
    pub(crate) created: Micros,
    /// The gateway that wrote the last segment.
    pub(crate) gateway: String,
    /// The number of the next line.
    pub(crate) next: u64,
    /// There are lines after the header.
    pub(crate) has_events: bool,
    pub(crate) open: FxHashMap<u128, OpenUse>,
    pub(crate) unsealed: Vec<u64>,
}

/// Finds the end of the journal in a directory, and cuts off a torn tail.
pub(crate) fn recover(directory: &Path) -> io::Result<RecoveredJournal> {
    for last in segment::list(directory)?.iter().rev() {
        let path = segment::path(directory, last.number);
        let bytes = std::fs::read(&path)?;
        // A crash while a segment was created may leave one without a good line: the one before it is the last.
        let Some(mut found) = scan_segment(last.number, &bytes) else {
            set_aside(&path, &bytes)?;
            continue;
        };
        let file = OpenOptions::new().write(true).open(&path)?;
        let torn = bytes.len() as u64 - found.length;
        if torn > 0 {
            tracing::warn!(path = %path.display(), bytes = torn, "cut a torn tail off the audit journal");
            file.set_len(found.length)?;
        }
        found.file = Some(file);
        return Ok(found);
    }
    Ok(RecoveredJournal { next: 1, ..RecoveredJournal::default() })
}

/// Sets a segment without a good line aside. A torn header is removed; anything else is kept under another name, as it
/// may hold damaged records.
fn set_aside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    tracing::warn!(path = %path.display(), bytes = bytes.len(), "set aside an audit segment without a good line");
    if bytes.contains(&b'\n') {
        return std::fs::rename(path, path.with_extension("jsonl.damaged"));
    }
    std::fs::remove_file(path)
}

/// Reads the state from the last segment; `None` when the segment has no good line.
fn scan_segment(number: u64, bytes: &[u8]) -> Option<RecoveredJournal> {
    let mut found = RecoveredJournal { number, ..RecoveredJournal::default() };
    // Most uses have ended by the end of the segment, so the lines of uses are parsed only when they have not.
    let mut begun: FxHashMap<u128, &[u8]> = FxHashMap::default();
    for (at, line) in line::split_lines(bytes) {
        // Damaged lines are skipped; a good line after them proves that they are no torn tail.
        let Some(n) = frame::verify_line(line) else { continue };
        found.next = n + 1;
        found.length = (at + line.len() + 1) as u64;
        found.has_events |= at > 0;
        match (line::event_kind(line), line::event_id(line)) {
            (Some(EventKind::Use), Some(id)) => drop(begun.insert(id, line)),
            (Some(EventKind::Outcome), Some(id)) => {
                begun.remove(&id);
                found.open.remove(&id);
            }
            (Some(EventKind::Header), _) => found.apply_header(line),
            (Some(EventKind::Seal), _) => found.apply_seal(line),
            _ => {}
        }
    }
    for (id, line) in begun {
        if let Ok(open) = serde_json::from_slice::<OpenUse>(line) {
            found.open.insert(id, OpenUse { segment: number, ..open });
        }
    }
    (found.length > 0).then_some(found)
}

impl RecoveredJournal {
    fn apply_header(&mut self, line: &[u8]) {
        if let Ok(header) = serde_json::from_slice::<SegmentHeader<'_>>(line) {
            self.created = header.created;
            self.gateway = header.gateway.into_owned();
            self.unsealed = header.unsealed.into_owned();
            self.open = header.open.into_iter().map(|open| (open.id.as_u128(), open)).collect();
        }
    }

    fn apply_seal(&mut self, line: &[u8]) {
        if let Ok(seal) = serde_json::from_slice::<Seal<'_>>(line) {
            self.unsealed.retain(|number| *number != seal.segment);
        }
    }
}
