//! The uses that are open where a segment begins, by the headers of the segments before it.

use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::event::OpenUse;
use super::segment::{self, Block};
use super::segment_event::SegmentHeader;
use super::source::{self, Piece};
use super::{frame, line};
use crate::files;

/// The uses that are open where a segment begins. Headers are applied in the order of the journal.
#[derive(Debug, Default)]
pub(crate) struct OpenUses {
    pub(crate) uses: FxHashMap<u128, OpenUse>,
}

impl OpenUses {
    /// Applies the header of the next segment.
    pub(crate) fn apply(&mut self, header: &SegmentHeader<'_>) {
        for id in header.ended.iter() {
            self.uses.remove(&id.as_u128());
        }
        let began = header.began.iter().map(|open| (open.id.as_u128(), OpenUse { listed_by: header.segment, ..*open }));
        self.uses.extend(began);
    }

    /// The uses that are open where a segment begins, given its header.
    pub(crate) fn at(directory: &Path, header: &SegmentHeader<'_>) -> io::Result<Self> {
        let mut open = Self::default();
        // A header lists the beginnings of the segment before it.
        let from = header.oldest.map_or(header.segment, |oldest| oldest.saturating_add(1));
        let segments = if from < header.segment { segment::list(directory)? } else { Vec::new() };
        for segment in segments.iter().filter(|segment| (from..header.segment).contains(&segment.number)) {
            if let Some(earlier) = read_header(directory, segment.number)? {
                open.apply(&earlier);
            }
        }
        open.apply(header);
        Ok(open)
    }
}

/// Reads the header of a segment; `None` when the segment is missing, empty, or begins with a damaged line.
pub(crate) fn read_header(directory: &Path, number: u64) -> io::Result<Option<SegmentHeader<'static>>> {
    Ok(read_numbered_header(directory, number)?.map(|(_, header)| header))
}

/// As [`read_header`], with the number of the line.
pub(crate) fn read_numbered_header(directory: &Path, number: u64) -> io::Result<Option<(u64, SegmentHeader<'static>)>> {
    let mut piece = Piece::default();
    if files::if_intact(source::read_block(directory, Block::header_of(number), &mut piece))?.is_none() {
        return Ok(None);
    }
    let header = line::split_lines(&piece).next().map(|(_, line)| line);
    Ok(header.and_then(|line| Some((frame::verify_line(line)?, parse_header(line)?))))
}

/// Parses the line of a header; `None` when it is damaged.
pub(crate) fn parse_header(line: &[u8]) -> Option<SegmentHeader<'static>> {
    frame::verify_line(line)?;
    serde_json::from_slice(line).ok()
}
