//! The part of this gateway's journal that PostgreSQL does not have yet.
//!
//! - PostgreSQL has everything before the position of the journal, but for uses that had just begun there: they began
//!   after the time up to which it is complete. So reading begins a little before the position.

use std::io;
use std::path::Path;

use super::fleet::JournalRow;
use crate::audit::filter::Filter;
use crate::audit::format::decode;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, Point};
use crate::audit::format::source::{self, Piece};
use crate::audit::read::follower::Follower;
use crate::audit::read::stop::StopSignal;
use crate::files;
use domain::clock::Micros;

/// The part of a journal that PostgreSQL does not have, and a little before it.
#[derive(Debug)]
pub(super) struct Unshipped<'a> {
    directory: &'a Path,
    at: Point,
    stop: &'a StopSignal,
}

impl<'a> Unshipped<'a> {
    /// The part behind the position of a journal; without one, the whole journal.
    pub(super) fn new(directory: &'a Path, shipped: Option<&JournalRow>, stop: &'a StopSignal) -> io::Result<Self> {
        let Some(row) = shipped else { return Ok(Self { directory, at: Point::START, stop }) };
        let at = begun_before(directory, row.position, row.whole_until(), stop)?;
        Ok(Self { directory, at, stop })
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> io::Result<u64> {
        let segments = files::if_found(segment::list_from(self.directory, self.at.segment))?.unwrap_or_default();
        let length: u64 = segments.iter().map(|segment| segment.length).sum();
        let is_there = segments.first().is_some_and(|first| first.number == self.at.segment);
        Ok(length.saturating_sub(if is_there { self.at.offset } else { 0 }))
    }

    /// Calls `each` with its uses that match a filter but for their outcomes, as far as they began or were carried on
    /// in it.
    pub(super) fn read(&self, filter: &Filter, each: &mut dyn FnMut(Record)) -> io::Result<()> {
        let read = Follower::read_once((self.directory.to_owned(), *filter), self.at, self.stop.clone(), each);
        // An auditor's machine has no journal.
        files::if_found(read).map(drop)
    }
}

/// The beginning of the last block before a point that holds a use from before a time, or of the journal: all uses in
/// earlier blocks began before that time, too.
fn begun_before(directory: &Path, point: Point, time: Micros, stop: &StopSignal) -> io::Result<Point> {
    let mut piece = Piece::default();
    let mut segments = files::if_found(segment::list(directory))?.unwrap_or_default();
    segments.retain(|segment| segment.number <= point.segment);
    for segment in segments.iter().rev() {
        let end = if segment.number == point.segment { segment.length.min(point.offset) } else { segment.length };
        for block in segment::blocks(segment.number, 0, end).rev() {
            stop.check()?;
            let offset = source::read_block(directory, block, &mut piece)?;
            if first_use(&piece).is_some_and(|first| first < time) {
                return Ok(Point { segment: segment.number, offset });
            }
        }
    }
    Ok(Point::START)
}

/// The time of the first use in a block.
fn first_use(piece: &[u8]) -> Option<Micros> {
    let uses = line::split_lines(piece)
        .filter(|(_, line)| matches!(line::event_kind(line), Some(EventKind::Use | EventKind::Record)));
    uses.map(|(_, line)| line).find_map(decode::verified_use).map(|begun| begun.time)
}
