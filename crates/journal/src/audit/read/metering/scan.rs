//! The pass over a journal in which its usage is added up.

use std::io;
use std::path::Path;

use rustc_hash::FxHashSet;

use super::query::UsageQuery;
use super::tally::UsageTally;
use crate::audit::format::event::UseEvent;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::{BLOCK, Block, Segment};
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{decode, open_uses};
use crate::audit::read::stop::StopSignal;
use domain::clock::Micros;

/// Microseconds by which the times of records may be behind the time at which their segment was created: both are read
/// at different moments.
const CLOCK_MARGIN: u64 = 1_000_000;

/// One pass over a journal.
pub(super) struct MeteringScan<'a> {
    directory: &'a Path,
    since: Option<Micros>,
    stop: &'a StopSignal,
    piece: Piece,
    pub(super) tally: UsageTally,
    /// The first segment that was read, or that has no use within the range.
    first: Option<u64>,
    /// The last one.
    last: u64,
    /// Segments that were removed after they were listed.
    removed: FxHashSet<u64>,
    /// Segments before this one are missing, and the next header has the time from which on there are records again.
    is_after_gap: bool,
    complete_from: Option<Micros>,
    pub(super) damaged_lines: u64,
}

impl<'a> MeteringScan<'a> {
    pub(super) fn new(directory: &'a Path, query: UsageQuery, stop: &'a StopSignal) -> Self {
        Self {
            directory,
            since: query.since,
            stop,
            piece: Piece::default(),
            tally: UsageTally::new(query),
            first: None,
            last: 0,
            removed: FxHashSet::default(),
            is_after_gap: false,
            complete_from: None,
            damaged_lines: 0,
        }
    }

    /// Reads a segment, as far as it may have uses of the range or outcomes that are still missing. `candidates` are
    /// the blocks that may have such uses.
    pub(super) fn read_segment(&mut self, segment: &Segment, candidates: &[Block]) -> io::Result<()> {
        self.stop.check()?;
        // Segments are numbered from 1.
        self.is_after_gap |= segment.number != self.last + 1;
        self.last = segment.number;
        if candidates.is_empty() && !self.tally.has_open_uses() && !self.is_after_gap {
            self.first.get_or_insert(segment.number);
            return Ok(());
        }
        // From here on it stays open, so that no removal cuts the reading short.
        if !self.piece.hold(self.directory, segment.number)? {
            self.is_after_gap = true;
            self.removed.insert(segment.number);
            return Ok(());
        }
        self.first.get_or_insert(segment.number);
        self.read_header(segment)?;
        self.read_blocks(segment, candidates)
    }

    fn read_header(&mut self, segment: &Segment) -> io::Result<()> {
        source::read_block(self.directory, Block::header_of(segment.number), &mut self.piece)?;
        let header = line::split_lines(&self.piece).next().and_then(|(_, line)| open_uses::parse_header(line));
        let Some(header) = header else { return Ok(()) };
        self.tally.set_gateway(&header.gateway);
        if std::mem::take(&mut self.is_after_gap) {
            self.complete_from = Some(Micros(header.created.0.saturating_add(CLOCK_MARGIN)));
        }
        Ok(())
    }

    fn read_blocks(&mut self, segment: &Segment, candidates: &[Block]) -> io::Result<()> {
        let mut at = 0;
        while at < segment.length {
            if !self.tally.has_open_uses() {
                let Some(next) = candidates.iter().find(|block| block.end > at) else { break };
                at = at.max(next.start);
            }
            self.stop.check()?;
            let end = segment.length.min(at + BLOCK);
            let mut piece = std::mem::take(&mut self.piece);
            source::read_block(self.directory, Block { segment: segment.number, start: at, end }, &mut piece)?;
            line::split_lines(&piece).for_each(|(_, line)| self.read_line(line));
            self.piece = piece;
            at = end;
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) {
        let is_good = match line::event_kind(line) {
            Some(EventKind::Use | EventKind::Record) => {
                decode::verified_use(line).map(|begun| self.tally.add_use(&begun)).is_some()
            }
            Some(EventKind::Carried) => decode::verified_use(line).map(|begun| self.add_carried(&begun)).is_some(),
            Some(EventKind::Outcome) => self.read_outcome(line).is_some(),
            Some(EventKind::Header | EventKind::Seal | EventKind::Expired | EventKind::Damaged) => true,
            None => false,
        };
        self.damaged_lines += u64::from(!is_good);
    }

    /// Reads an outcome; `None` when the line is damaged. Outcomes of uses outside of the range are not parsed.
    fn read_outcome(&mut self, line: &[u8]) -> Option<()> {
        if self.tally.is_open(line::event_id(line)?) {
            self.tally.add_outcome(&decode::verified_outcome(line)?);
        }
        Some(())
    }

    /// Adds a use that was carried on, unless it was added where it began.
    fn add_carried(&mut self, carried: &UseEvent<'_>) {
        let was_read = carried
            .from
            .is_some_and(|from| self.first.is_some_and(|first| from >= first) && !self.removed.contains(&from));
        if !was_read {
            self.tally.add_use(carried);
        }
    }

    /// The time from which on all records of the range are there; `None` when that is all of it.
    pub(super) fn complete_from(&self, now: Micros) -> Option<Micros> {
        let from = if self.is_after_gap { Some(now) } else { self.complete_from };
        from.filter(|from| self.since.is_none_or(|since| since < *from))
    }
}
