//! Following of a journal while it grows.

use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::stop::StopSignal;
use crate::audit::filter::Filter;
use crate::audit::format::event::UseEvent;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::{Outcome, Record};
use crate::audit::format::segment::{self, Block, Point, Segment};
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{decode, open_uses};

/// Follower of a growing journal: a position in it, and the uses that are open there.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    filter: Filter,
    /// Everything before this point has been read.
    at: Point,
    /// The gateway that writes the segment being read.
    gateway: String,
    /// Matching uses without an outcome, each with the gateway that wrote it.
    open: FxHashMap<u128, (UseEvent<'static>, String)>,
    /// Records for the first poll.
    pub(crate) first: Vec<Record>,
    stop: StopSignal,
}

impl Follower {
    /// Begins at the present end of a journal.
    pub(crate) fn at_end(directory: PathBuf, filter: Filter) -> io::Result<Self> {
        let last = segment::list_files(&directory)?.last().map_or(0, |segment| segment.number);
        // Reading begins where the oldest open use did, so that its outcome finds it.
        let from = oldest_open_segment(&directory, last)?;
        let mut follower = Self::new(directory, filter, Point { segment: from, offset: 0 });
        follower.read_new_lines(&mut |_| {})?;
        Ok(follower)
    }

    fn new(directory: PathBuf, filter: Filter, at: Point) -> Self {
        Self {
            directory,
            filter,
            at,
            gateway: String::new(),
            open: FxHashMap::default(),
            first: Vec::new(),
            stop: StopSignal::default(),
        }
    }

    /// Calls `each` with the records of uses whose lines, of beginning or carrying on, are at or after a point: those
    /// that are complete, then those in progress. The outcome of the filter is not tested.
    pub(crate) fn read_once(
        (directory, filter): (PathBuf, Filter),
        at: Point,
        stop: StopSignal,
        each: &mut dyn FnMut(Record),
    ) -> io::Result<()> {
        let mut follower = Self { stop, ..Self::new(directory, filter, at) };
        let header = open_uses::read_header(&follower.directory, at.segment)?;
        follower.gateway = header.map(|header| header.gateway.into_owned()).unwrap_or_default();
        follower.read_new_lines(each)?;
        follower.open.into_values().for_each(|(begun, gateway)| each(begun.into_record(None, &gateway)));
        Ok(())
    }

    /// Returns the records completed since the last poll, in the order of their completion.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<Record>> {
        let mut records = std::mem::take(&mut self.first);
        let filter = self.filter;
        self.read_new_lines(&mut |record| records.extend(filter.matches_outcome(&record).then_some(record)))?;
        Ok(records)
    }

    /// True when a listed record was complete before this position, so that no poll will return it.
    pub(crate) fn has_passed(&self, point: Point, record: &Record) -> bool {
        record.outcome != Outcome::InProgress && point < self.at && !self.open.contains_key(&record.id.as_u128())
    }

    fn read_new_lines(&mut self, each: &mut dyn FnMut(Record)) -> io::Result<()> {
        let segments = segment::list_from(&self.directory, self.at.segment)?;
        let mut piece = Piece::default();
        for segment in &segments {
            if segment.number > self.at.segment {
                self.at = Point { segment: segment.number, offset: 0 };
            }
            self.read_segment(segment, &mut piece, each)?;
        }
        Ok(())
    }

    fn read_segment(&mut self, segment: &Segment, piece: &mut Piece, each: &mut dyn FnMut(Record)) -> io::Result<()> {
        // The writer cuts off lines that a failed write left behind; what replaces them begins where the file ended.
        self.at.offset = self.at.offset.min(segment.length);
        while self.at.offset < segment.length {
            self.stop.check()?;
            let end = segment.length.min(self.at.offset + segment::BLOCK);
            let block = Block { segment: segment.number, start: self.at.offset, end };
            source::read_block(&self.directory, block, piece)?;
            let whole = line::whole_length(piece);
            // Only a line that is still being written is left: the next poll reads it.
            if whole == 0 {
                break;
            }
            for (_, line) in line::split_lines(&piece[..whole]) {
                self.handle_line(line, each);
            }
            self.at.offset += whole as u64;
        }
        Ok(())
    }

    fn handle_line(&mut self, line: &[u8], each: &mut dyn FnMut(Record)) {
        match line::event_kind(line) {
            Some(EventKind::Use) => {
                if let Some(begun) = self.filter.parse_use(line) {
                    self.open.insert(begun.id.as_u128(), (begun, self.gateway.clone()));
                }
            }
            Some(EventKind::Carried) => {
                // The beginning itself was read before, unless its segment had been removed by then.
                if let Some(begun) = self.filter.parse_use(line) {
                    self.open.entry(begun.id.as_u128()).or_insert_with(|| (begun, self.gateway.clone()));
                }
            }
            Some(EventKind::Record) => {
                if let Some(record) = self.filter.parse_use(line) {
                    each(record.into_record(None, &self.gateway));
                }
            }
            Some(EventKind::Outcome) => {
                let Some(id) = line::event_id(line) else { return };
                if let Some((begun, gateway)) = self.open.remove(&id) {
                    each(begun.into_record(decode::verified_outcome(line).as_ref(), &gateway));
                }
            }
            Some(EventKind::Header) => {
                if let Ok(header) = serde_json::from_slice::<SegmentHeader<'_>>(line) {
                    self.gateway = header.gateway.into_owned();
                }
            }
            Some(EventKind::Seal | EventKind::Expired | EventKind::Damaged) | None => {}
        }
    }
}

/// The segment in which the oldest of the uses began that were open when the last segment began.
fn oldest_open_segment(directory: &Path, last: u64) -> io::Result<u64> {
    let Some(header) = open_uses::read_header(directory, last)? else { return Ok(last) };
    Ok(header.oldest.unwrap_or(last).min(last))
}
