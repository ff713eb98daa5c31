//! Joining of uses with their outcomes, a block at a time.
//!
//! - The outcome of a use is searched from the use on: in its block, then in the rest of the journal. A
//!   segment is skipped when, by the header of the next one, all uses that still miss their outcome were open
//!   at its end. So memory is that of a block and a header, and a use of an hour costs reading the segments in
//!   which it began and ended.
//! - A use whose segment was removed is read from where it was carried to.

use std::collections::hash_map::Entry;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use uuid::Uuid;

use super::stop::StopSignal;
use crate::audit::filter::Filter;
use crate::audit::format::event::{OutcomeEvent, UseEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, Block, Point, Segment};
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{decode, open_uses};

/// Scanner over the segments of a journal as they were listed.
#[derive(Debug)]
pub(crate) struct RecordScanner {
    directory: PathBuf,
    segments: Vec<Segment>,
    /// Headers that were read, by segment.
    headers: FxHashMap<u64, Rc<HeaderInfo>>,
    piece: Piece,
    stop: StopSignal,
    /// Bytes read so far.
    pub(crate) bytes: u64,
}

/// The part of a segment's header that joining needs.
#[derive(Debug, Default)]
struct HeaderInfo {
    gateway: String,
    /// `None` when the header is damaged.
    changes: Option<OpenChanges>,
}

/// The changes of the open uses in segment N - 1, as the header of segment N lists them.
#[derive(Debug)]
struct OpenChanges {
    /// Uses that began in N - 1 and are open at its end.
    began: FxHashSet<u128>,
    /// Uses that began before N - 1 and ended in it.
    ended: FxHashSet<u128>,
}

impl HeaderInfo {
    fn new(header: SegmentHeader<'_>) -> Self {
        let began = header.began.iter().map(|open| open.id.as_u128()).collect();
        let ended = header.ended.iter().map(Uuid::as_u128).collect();
        Self { gateway: header.gateway.into_owned(), changes: Some(OpenChanges { began, ended }) }
    }

    /// Returns whether a use without an outcome before segment N - 1 was open at its end; `is_new` when it began in it.
    fn is_open(&self, id: u128, is_new: bool) -> bool {
        let Some(OpenChanges { began, ended }) = &self.changes else { return false };
        if is_new { began.contains(&id) } else { !ended.contains(&id) }
    }
}

/// A use, and its outcome once that is found.
struct FoundUse {
    point: Point,
    begun: UseEvent<'static>,
    ended: Option<OutcomeEvent>,
}

impl RecordScanner {
    pub(crate) fn new(directory: PathBuf, segments: Vec<Segment>, stop: StopSignal) -> Self {
        Self { directory, segments, headers: FxHashMap::default(), piece: Piece::default(), stop, bytes: 0 }
    }

    /// Reads the matching records whose uses are in a block, oldest first, with their positions.
    pub(crate) fn read_records(&mut self, block: Block, filter: &Filter) -> io::Result<Vec<(Point, Record)>> {
        let start = self.read_block(block)?;
        let mut found: Vec<FoundUse> = Vec::new();
        // Uses without an outcome yet, by id, with their places in `found`.
        let mut waiting: FxHashMap<u128, usize> = FxHashMap::default();
        // A carried use counts when the segment that it was carried from is no longer there.
        let first = self.segments.first().map_or(0, |segment| segment.number);
        for (at, line) in line::split_lines(&self.piece) {
            match line::event_kind(line) {
                Some(EventKind::Use | EventKind::Record | EventKind::Carried) => {
                    let Some(begun) = filter.parse_use(line) else { continue };
                    if begun.from.is_some_and(|from| from >= first) {
                        continue;
                    }
                    if begun.e != EventKind::Record {
                        waiting.insert(begun.id.as_u128(), found.len());
                    }
                    let point = Point { segment: block.segment, offset: start + at as u64 };
                    found.push(FoundUse { point, begun, ended: None });
                }
                Some(EventKind::Outcome) => attach_outcome(line, &mut waiting, &mut found),
                _ => {}
            }
        }
        let end = Point { segment: block.segment, offset: start + self.piece.len() as u64 };
        self.find_later_outcomes(end, &mut waiting, &mut found)?;
        let header = self.header_info(block.segment)?;
        let joined = found
            .into_iter()
            .map(|found| (found.point, found.begun.into_record(found.ended.as_ref(), &header.gateway)));
        Ok(joined.filter(|(_, record)| filter.matches_outcome(record)).collect())
    }

    /// Searches the outcomes of the waiting uses, from a point on.
    fn find_later_outcomes(
        &mut self,
        from: Point,
        waiting: &mut FxHashMap<u128, usize>,
        found: &mut [FoundUse],
    ) -> io::Result<()> {
        let first = self.segments.partition_point(|segment| segment.number < from.segment);
        for i in first..self.segments.len() {
            if waiting.is_empty() {
                break;
            }
            // A segment at whose end all of them were open holds none of their outcomes.
            if self.all_open_after(i, i == first, waiting)? {
                continue;
            }
            let segment = self.segments[i];
            let start = if segment.number == from.segment { from.offset } else { 0 };
            self.find_outcomes_in_segment(segment, start, waiting, found)?;
        }
        Ok(())
    }

    fn find_outcomes_in_segment(
        &mut self,
        segment: Segment,
        start: u64,
        waiting: &mut FxHashMap<u128, usize>,
        found: &mut [FoundUse],
    ) -> io::Result<()> {
        for block in segment::blocks(segment.number, start, segment.length) {
            self.read_block(block)?;
            for (_, line) in line::split_lines(&self.piece) {
                if line::event_kind(line) == Some(EventKind::Outcome) {
                    attach_outcome(line, waiting, found);
                }
            }
            if waiting.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// True when all waiting uses were still open when the segment after this one began.
    /// `are_new` when they began in this one.
    fn all_open_after(&mut self, i: usize, are_new: bool, waiting: &FxHashMap<u128, usize>) -> io::Result<bool> {
        let Some(next) = self.segments.get(i + 1).map(|segment| segment.number) else { return Ok(false) };
        let header = self.header_info(next)?;
        Ok(waiting.keys().all(|id| header.is_open(*id, are_new)))
    }

    fn read_block(&mut self, block: Block) -> io::Result<u64> {
        self.stop.check()?;
        let start = source::read_block(&self.directory, block, &mut self.piece)?;
        self.bytes += self.piece.len() as u64;
        Ok(start)
    }

    fn header_info(&mut self, segment: u64) -> io::Result<Rc<HeaderInfo>> {
        match self.headers.entry(segment) {
            Entry::Occupied(read) => Ok(Rc::clone(read.get())),
            Entry::Vacant(vacant) => {
                let header = open_uses::read_header(&self.directory, segment)?;
                // A damaged header names no open uses, so its predecessor is searched; its gateway is unknown.
                Ok(Rc::clone(vacant.insert(Rc::new(header.map(HeaderInfo::new).unwrap_or_default()))))
            }
        }
    }
}

/// Attaches an outcome to the use that waits for it, if any. A damaged outcome is ignored.
fn attach_outcome(line: &[u8], waiting: &mut FxHashMap<u128, usize>, found: &mut [FoundUse]) {
    let Some(id) = line::event_id(line) else { return };
    let Entry::Occupied(waits) = waiting.entry(id) else { return };
    if let Some(ended) = decode::verified_outcome(line) {
        found[waits.remove()].ended = Some(ended);
    }
}
