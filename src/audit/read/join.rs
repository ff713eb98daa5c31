//! Joining uses with their outcomes, a block at a time.
//!
//! The outcome is looked for from the use on: in its block, then in what follows. Segments at whose end the use was still
//! open, as the next one's header says, are passed over. So memory is that of a block and a header, and a use that took
//! an hour costs a look at the segments in which it began and ended.

use std::collections::hash_map::Entry;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::audit::filter::Filter;
use crate::audit::format::event::{Header, OutcomeEvent, UseEvent};
use crate::audit::format::frame;
use crate::audit::format::line::{self, Kind};
use crate::audit::format::record::Record;
use crate::audit::format::segment::Point;
use crate::audit::format::segment::{self, Block, Segment};

/// A journal as it was listed, being read.
#[derive(Debug)]
pub(crate) struct Scan {
    directory: PathBuf,
    segments: Vec<Segment>,
    headers: FxHashMap<u64, Rc<Begin>>,
    piece: Vec<u8>,
    /// How many were read.
    pub(crate) bytes: u64,
}

/// What a segment's header says.
#[derive(Debug, Default)]
struct Begin {
    gateway: String,
    open: FxHashSet<u128>,
}

/// A use, and its end as soon as it is found.
struct Found {
    point: Point,
    begun: UseEvent<'static>,
    ended: Option<OutcomeEvent>,
}

impl Scan {
    pub(crate) fn new(directory: PathBuf, segments: Vec<Segment>) -> Self {
        Self { directory, segments, headers: FxHashMap::default(), piece: Vec::new(), bytes: 0 }
    }

    /// The wanted records whose uses are in a block, oldest first, with their places.
    pub(crate) fn records(&mut self, block: Block, filter: &Filter) -> io::Result<Vec<(Point, Record)>> {
        let start = self.read(block)?;
        let mut found: Vec<Found> = Vec::new();
        let mut waiting: FxHashMap<u128, usize> = FxHashMap::default();
        for (at, line) in line::lines(&self.piece) {
            match line::kind(line) {
                Some(Kind::Use | Kind::Record) => {
                    let Some(begun) = wanted(line, filter) else { continue };
                    if begun.e == Kind::Use {
                        waiting.insert(begun.id.as_u128(), found.len());
                    }
                    found.push(Found { point: (block.segment, start + at as u64), begun, ended: None });
                }
                Some(Kind::Outcome) => settle(line, &mut waiting, &mut found),
                _ => {}
            }
        }
        let end = start + self.piece.len() as u64;
        self.look_ahead((block.segment, end), &mut waiting, &mut found)?;
        let begin = self.begin(block.segment)?;
        let joined = found.into_iter().map(|use_| (use_.point, use_.begun.joined(use_.ended.as_ref(), &begin.gateway)));
        Ok(joined.filter(|(_, record)| filter.admits_end(record)).collect())
    }

    /// Looks for the outcomes of the uses that wait for theirs, from a point on.
    fn look_ahead(&mut self, from: Point, waiting: &mut FxHashMap<u128, usize>, found: &mut [Found]) -> io::Result<()> {
        let first = self.segments.partition_point(|segment| segment.number < from.0);
        for i in first..self.segments.len() {
            if waiting.is_empty() {
                break;
            }
            let segment = self.segments[i];
            if self.all_open_after(i, waiting)? {
                continue;
            }
            let start = if segment.number == from.0 { from.1 } else { 0 };
            for block in segment::blocks(segment.number, start, segment.length) {
                self.read(block)?;
                for (_, line) in line::lines(&self.piece) {
                    if line::kind(line) == Some(Kind::Outcome) {
                        settle(line, waiting, found);
                    }
                }
                if waiting.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether all that wait were still open when the segment after this one began.
    fn all_open_after(&mut self, i: usize, waiting: &FxHashMap<u128, usize>) -> io::Result<bool> {
        let Some(next) = self.segments.get(i + 1).map(|segment| segment.number) else { return Ok(false) };
        let begin = self.begin(next)?;
        Ok(waiting.keys().all(|id| begin.open.contains(id)))
    }

    fn read(&mut self, block: Block) -> io::Result<u64> {
        let start = segment::read(&self.directory, block, &mut self.piece)?;
        self.bytes += self.piece.len() as u64;
        Ok(start)
    }

    fn begin(&mut self, segment: u64) -> io::Result<Rc<Begin>> {
        match self.headers.entry(segment) {
            Entry::Occupied(known) => Ok(Rc::clone(known.get())),
            Entry::Vacant(vacant) => {
                segment::read(&self.directory, Block { segment, start: 0, end: 1 }, &mut self.piece)?;
                self.bytes += self.piece.len() as u64;
                let header = line::lines(&self.piece).next().and_then(|(_, line)| header(line));
                Ok(Rc::clone(vacant.insert(Rc::new(header.unwrap_or_default()))))
            }
        }
    }
}

fn header(line: &[u8]) -> Option<Begin> {
    frame::check(line)?;
    let header: Header<'_> = serde_json::from_slice(line).ok()?;
    let open = header.open.iter().map(|open| open.id.as_u128()).collect();
    Some(Begin { gateway: header.gateway.into_owned(), open })
}

/// The use in a line, when it is good and wanted.
pub(crate) fn wanted(line: &[u8], filter: &Filter) -> Option<UseEvent<'static>> {
    if !filter.admits_id(line) {
        return None;
    }
    frame::check(line)?;
    let begun: UseEvent<'static> = serde_json::from_slice(line).ok()?;
    filter.admits(&begun).then_some(begun)
}

/// Gives an outcome to the use that waits for it, if one does.
fn settle(line: &[u8], waiting: &mut FxHashMap<u128, usize>, found: &mut [Found]) {
    let Some(id) = line::id(line) else { return };
    let Entry::Occupied(waits) = waiting.entry(id) else { return };
    if let Some(ended) = outcome(line) {
        found[waits.remove()].ended = Some(ended);
    }
}

/// The outcome in a line, when it is good.
pub(crate) fn outcome(line: &[u8]) -> Option<OutcomeEvent> {
    frame::check(line)?;
    serde_json::from_slice(line).ok()
}
