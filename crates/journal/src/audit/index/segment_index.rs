//! The index of one segment: the parts in which ids occur, and the usage of the keys in it.

use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::indexed_use::IndexedEvent;
use super::members::Members;
use super::segment_usage::{OpenPlace, SegmentUsage};
use crate::audit::format::begun_uses;
use crate::audit::format::line;
use crate::audit::format::segment::{self, Point, Segment};
use crate::audit::format::source::{self, Piece};

/// The index of one segment, up to `length`.
#[derive(Debug)]
pub(crate) struct SegmentIndex {
    pub(crate) segment: u64,
    /// Bytes of the segment that are indexed.
    pub(crate) length: u64,
    pub(crate) members: Members,
    /// Usage is counted from this offset on: what is before was added up when the journal was closed.
    pub(crate) counted_from: u64,
    pub(crate) usage: SegmentUsage,
    /// Number of damaged lines that are not counted.
    pub(crate) damaged: u64,
}

impl SegmentIndex {
    /// The index of a segment without lines; `part` is the length of its parts, `open_uses` are those that
    /// earlier segments left open.
    pub(crate) fn new(segment: u64, part: u64, open_uses: FxHashMap<u128, OpenPlace>) -> Self {
        let usage = SegmentUsage::new(segment, open_uses);
        Self { segment, length: 0, members: Members::new(part), counted_from: 0, usage, damaged: 0 }
    }

    /// The point up to which it reaches.
    pub(crate) fn end(&self) -> Point {
        Point { segment: self.segment, offset: self.length }
    }

    /// Indexes an event, whose line begins at this offset.
    pub(crate) fn add(&mut self, event: &IndexedEvent, offset: u64) {
        if let IndexedEvent::Use(used) | IndexedEvent::Carried(used) = event {
            self.members.add(used, offset);
        }
        if offset >= self.counted_from {
            self.usage.count(event, offset);
        }
    }

    /// Reads a segment to build its index. `proceed` is asked before each block; `None` when it says no.
    pub(crate) fn build(
        directory: &Path,
        segment: &Segment,
        (part, counted_from): (u64, u64),
        proceed: impl Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let begin = Point { segment: segment.number, offset: 0 };
        let mut index = Self::new(segment.number, part, open_places(directory, begin)?);
        index.counted_from = counted_from;
        let mut piece = Piece::default();
        for block in segment::blocks(segment.number, 0, segment.length) {
            if !proceed() {
                return Ok(None);
            }
            let start = source::read_block(directory, block, &mut piece)?;
            for (at, line) in line::split_lines(&piece) {
                let offset = start + at as u64;
                match IndexedEvent::from_line(line) {
                    Ok(event) => event.iter().for_each(|event| index.add(event, offset)),
                    Err(_) => index.damaged += u64::from(offset >= counted_from),
                }
            }
        }
        index.length = segment.length;
        Ok(Some(index))
    }
}

/// The uses that are open at a point, by the lines of their beginnings.
pub(crate) fn open_places(directory: &Path, at: Point) -> io::Result<FxHashMap<u128, OpenPlace>> {
    let open = begun_uses::open_at(directory, at)?;
    Ok(open.into_iter().filter_map(|(id, begun)| Some((id, OpenPlace::of_earlier(&begun.event)?))).collect())
}
