//! Following a journal while it grows.

use std::io;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::audit::filter::Filter;
use crate::audit::format::event::{Header, UseEvent};
use crate::audit::format::line::{self, Kind};
use crate::audit::format::record::{Outcome, Record};
use crate::audit::format::segment::Point;
use crate::audit::format::segment::{self, Block};
use crate::audit::read::join;

/// A place in a journal that moves on with it, and the uses open there.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    filter: Filter,
    /// Everything before this has been read.
    at: Point,
    /// The gateway that writes the segment being read.
    gateway: String,
    open: FxHashMap<u128, (UseEvent<'static>, String)>,
    /// What the first poll gives.
    pub(crate) first: Vec<Record>,
}

impl Follower {
    /// At the end of a journal as it is now.
    pub(crate) fn at_end(directory: PathBuf, filter: Filter) -> io::Result<Self> {
        let last = segment::list(&directory)?.last().map_or(0, |segment| segment.number);
        let from = oldest_open(&directory, last)?;
        let mut follow = Self {
            directory,
            filter,
            at: (from, 0),
            gateway: String::new(),
            open: FxHashMap::default(),
            first: Vec::new(),
        };
        follow.advance(&mut |_| {})?;
        Ok(follow)
    }

    /// The records completed since the last poll, in the order of their completion.
    ///
    /// # Errors
    /// When the segments cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<Record>> {
        let mut records = std::mem::take(&mut self.first);
        let filter = self.filter;
        self.advance(&mut |record| records.extend(filter.admits_end(&record).then_some(record)))?;
        Ok(records)
    }

    /// Whether a listed record will not be given by a poll: it was complete before this place.
    pub(crate) fn has_passed(&self, point: Point, record: &Record) -> bool {
        record.outcome != Outcome::InProgress && point < self.at && !self.open.contains_key(&record.id.as_u128())
    }

    fn advance(&mut self, each: &mut dyn FnMut(Record)) -> io::Result<()> {
        let segments = segment::list(&self.directory)?;
        let mut piece = Vec::new();
        let behind = segments.partition_point(|segment| segment.number < self.at.0);
        for segment in &segments[behind..] {
            if segment.number > self.at.0 {
                self.at = (segment.number, 0);
            }
            // Lines of refused requests that were cut off again: what replaced them begins where the file ended.
            self.at.1 = self.at.1.min(segment.length);
            while self.at.1 < segment.length {
                let end = segment.length.min(self.at.1 + segment::BLOCK);
                segment::read(&self.directory, Block { segment: segment.number, start: self.at.1, end }, &mut piece)?;
                let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
                if whole == 0 {
                    break;
                }
                line::lines(&piece[..whole]).for_each(|(_, line)| self.line(line, each));
                self.at.1 += whole as u64;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], each: &mut dyn FnMut(Record)) {
        match line::kind(line) {
            Some(Kind::Use) => {
                if let Some(begun) = join::wanted(line, &self.filter) {
                    self.open.insert(begun.id.as_u128(), (begun, self.gateway.clone()));
                }
            }
            Some(Kind::Record) => {
                if let Some(record) = join::wanted(line, &self.filter) {
                    each(record.joined(None, &self.gateway));
                }
            }
            Some(Kind::Outcome) => {
                let begun = line::id(line).and_then(|id| self.open.remove(&id));
                if let Some((begun, gateway)) = begun {
                    each(begun.joined(join::outcome(line).as_ref(), &gateway));
                }
            }
            Some(Kind::Header) => {
                if let Ok(header) = serde_json::from_slice::<Header<'_>>(line) {
                    self.gateway = header.gateway.into_owned();
                }
            }
            Some(Kind::Seal) | None => {}
        }
    }
}

/// The segment in which the oldest use began that was open when the last segment did.
fn oldest_open(directory: &std::path::Path, last: u64) -> io::Result<u64> {
    let mut piece = Vec::new();
    segment::read(directory, Block { segment: last, start: 0, end: 1 }, &mut piece)?;
    let header = line::lines(&piece).next().and_then(|(_, line)| serde_json::from_slice::<Header<'_>>(line).ok());
    let open = header.map(|header| header.open).unwrap_or_default();
    Ok(open.iter().map(|open| open.segment).min().unwrap_or(last).min(last))
}
