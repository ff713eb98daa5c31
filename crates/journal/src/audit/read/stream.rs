//! Stream of the journal's records, for sinks: from a position on, across segments and restarts.
//!
//! - Each use gives one record when its outcome is known. One that stays open for longer gives a record `in_progress`
//!   before that, when the caller wants it.
//! - A position is enough to go on from: the uses that are open there are read again ([`super::begun_uses`]).
//! - It reads up to the end that the writer states, so that no line is delivered that is then withdrawn.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::begun_uses::{self, BegunUse};
use super::journal_checkpoint::{self, JournalCheckpoint};
use super::stream_start;
use crate::audit::format::event::UseEvent;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, BLOCK, Block, Point};
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::stream_position::StreamPosition;
use crate::audit::format::{decode, frame};
use domain::clock::Micros;

/// Stream of the journal's records.
#[derive(Debug)]
pub struct RecordStream {
    directory: PathBuf,
    at: StreamPosition,
    /// The gateway that writes the segment being read.
    gateway: Arc<str>,
    open: FxHashMap<u128, BegunUse>,
    /// Open uses that gave no record yet, in the order of their beginnings.
    young: VecDeque<u128>,
    /// Time for which a use is open before it gives a record `in_progress`; none: never.
    open_after: Option<Duration>,
    piece: Piece,
    skipped: u64,
    skipped_lines: u64,
    has_lost_lines: bool,
}

/// Records of a part of the journal.
#[derive(Debug)]
pub struct StreamBatch {
    /// The records, in the order of their completion; then those that are in progress.
    pub records: Vec<Record>,
    /// The checkpoints, in the order of their sizes.
    pub checkpoints: Vec<JournalCheckpoint>,
    /// The end of the part.
    pub position: StreamPosition,
    /// Time of the last use that began in it.
    pub last_time: Option<Micros>,
    /// The part goes up to the end of the journal.
    pub reached_end: bool,
    /// Segments that were gone or damaged, and so are missing.
    pub skipped_segments: u64,
    /// Damaged lines of the others, which are missing, too.
    pub skipped_lines: u64,
}

/// Content of the part that is being read.
#[derive(Debug, Default)]
struct Part {
    records: Vec<Record>,
    checkpoints: Vec<JournalCheckpoint>,
    last_time: Option<Micros>,
}

impl RecordStream {
    /// Begins at a position; at the first segment that is there, with [`StreamPosition::START`]. `end` is that of the
    /// journal. A position that the journal no longer has makes it begin earlier: some records come again.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn open(
        directory: &Path,
        from: StreamPosition,
        end: JournalEnd,
        open_after: Option<Duration>,
    ) -> io::Result<Self> {
        let (at, has_lost_lines) = stream_start::find(directory, from, end.point)?;
        let header = crate::audit::format::open_uses::read_header(directory, at.segment)?;
        let open = begun_uses::open_at(directory, at.point())?;
        let mut young: Vec<(Micros, u128)> = open.iter().map(|(id, begun)| (begun.event.time, *id)).collect();
        young.sort_unstable();
        Ok(Self {
            directory: directory.to_owned(),
            at,
            gateway: header.map_or_else(Arc::default, |header| header.gateway.as_ref().into()),
            open,
            young: young.into_iter().map(|(_, id)| id).collect(),
            open_after,
            piece: Piece::default(),
            // Segments between the position and the first that is there were removed before they were read.
            skipped: if from.segment > 0 { at.segment.saturating_sub(from.segment) } else { 0 },
            skipped_lines: 0,
            has_lost_lines,
        })
    }

    /// Returns whether the journal no longer had the last lines before the position from which it was opened: it was
    /// put back to an earlier state, has lost its end, or is damaged there.
    pub fn has_lost_lines(&self) -> bool {
        self.has_lost_lines
    }

    /// The position up to which records were returned.
    pub fn position(&self) -> StreamPosition {
        self.at
    }

    /// Reads on, up to about `limit` records or the end of the journal. After an error, the stream
    /// must be opened again.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn next_batch(&mut self, end: JournalEnd, limit: usize, now: Micros) -> io::Result<StreamBatch> {
        let mut part = Part::default();
        let reached_end = loop {
            if part.records.len() >= limit {
                break false;
            }
            if !self.read_block(end.point, &mut part)? {
                break true;
            }
        };
        // While there is more to read, a use is as old as the journal is at this place: its end may
        // be in the next line.
        if let Some(present) = if reached_end { Some(now) } else { part.last_time } {
            self.add_open(present, &mut part.records);
        }
        let Part { records, checkpoints, last_time } = part;
        let skipped_segments = mem::take(&mut self.skipped);
        let skipped_lines = mem::take(&mut self.skipped_lines);
        let position = self.at;
        Ok(StreamBatch { records, checkpoints, position, last_time, reached_end, skipped_segments, skipped_lines })
    }

    /// Reads one block; returns false at the end of the journal.
    fn read_block(&mut self, end: Point, part: &mut Part) -> io::Result<bool> {
        if self.at.point() >= end {
            return Ok(false);
        }
        let limit = if self.at.segment == end.segment { end.offset } else { u64::MAX };
        let to = limit.min(self.at.offset + BLOCK);
        let block = Block { segment: self.at.segment, start: self.at.offset, end: to };
        let mut piece = mem::take(&mut self.piece);
        let read = match source::read_block(&self.directory, block, &mut piece) {
            // What cannot be read now will not be readable later: the rest of the segment is left out, and counted.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(%error, segment = self.at.segment,
                    "a damaged part of the audit journal cannot be shipped; see `keygate audit verify`");
                self.skipped += 1;
                0
            }
            read => {
                read?;
                self.read_lines(&piece, part)
            }
        };
        self.piece = piece;
        if read > 0 {
            return Ok(true);
        }
        self.enter_next_segment(end)
    }

    /// Handles the whole lines of a piece at the position; returns their length.
    fn read_lines(&mut self, piece: &[u8], part: &mut Part) -> usize {
        let whole = line::whole_length(piece);
        let mut last_line = None;
        for (at, line) in line::split_lines(&piece[..whole]) {
            if !self.handle_line(line, part) {
                self.skipped_lines += 1;
            }
            last_line = Some((at, line));
        }
        if let Some((at, line)) = last_line {
            self.at.last_line = self.at.offset + at as u64;
            self.at.checksum = crc32fast::hash(line);
            self.at.line = frame::verify_line(line).unwrap_or(self.at.line);
        }
        self.at.offset += whole as u64;
        whole
    }

    /// Goes on to the next segment that is there; returns false when there is none up to the end.
    fn enter_next_segment(&mut self, end: Point) -> io::Result<bool> {
        if self.at.segment >= end.segment {
            return Ok(false);
        }
        let files = segment::list_files(&self.directory)?;
        let next = files.iter().map(|file| file.number).find(|number| *number > self.at.segment);
        let next = next.unwrap_or(end.segment).min(end.segment);
        if self.at.segment > 0 {
            self.skipped += next - self.at.segment - 1;
        }
        self.at = self.at.at_segment(next);
        Ok(true)
    }

    /// Handles a line; returns false when it is damaged, and what it says is missing.
    fn handle_line(&mut self, line: &[u8], part: &mut Part) -> bool {
        match line::event_kind(line) {
            Some(EventKind::Use) => {
                let Some(begun) = decode::verified_use(line) else { return false };
                part.last_time = Some(begun.time);
                self.begin(begun.into_owned());
            }
            // The beginning itself was read before, unless its segment had been removed by then.
            Some(EventKind::Carried) => {
                let Some(begun) = decode::verified_use(line) else { return false };
                if !self.open.contains_key(&begun.id.as_u128()) {
                    self.begin(begun.into_owned());
                }
            }
            Some(EventKind::Record) => {
                let Some(record) = decode::verified_use(line) else { return false };
                part.last_time = Some(record.time);
                part.records.push(record.into_owned().into_record(None, &self.gateway));
            }
            Some(EventKind::Outcome) => {
                let ended = decode::verified_outcome(line);
                if let Some(begun) = line::event_id(line).and_then(|id| self.open.remove(&id)) {
                    part.records.push(begun.event.into_record(ended.as_ref(), &begun.gateway));
                }
                return ended.is_some();
            }
            Some(EventKind::Header) => match serde_json::from_slice::<SegmentHeader<'_>>(line) {
                Ok(header) => self.gateway = header.gateway.as_ref().into(),
                Err(_) => return false,
            },
            Some(EventKind::Seal | EventKind::Expired | EventKind::Damaged) | None => {
                part.checkpoints.extend(journal_checkpoint::read_line(line, &self.gateway));
                return frame::verify_line(line).is_some();
            }
        }
        true
    }

    fn begin(&mut self, event: UseEvent<'static>) {
        let id = event.id.as_u128();
        if self.open_after.is_some() {
            self.young.push_back(id);
        }
        self.open.insert(id, BegunUse { event, gateway: Arc::clone(&self.gateway) });
    }

    /// Adds the uses that have been open for long enough at `present`.
    fn add_open(&mut self, present: Micros, records: &mut Vec<Record>) {
        let Some(open_after) = self.open_after else { return };
        while let Some(id) = self.young.front() {
            if let Some(begun) = self.open.get(id) {
                if begun.event.time.after(open_after) > present {
                    return;
                }
                records.push(begun.event.clone().into_record(None, &begun.gateway));
            }
            self.young.pop_front();
        }
    }
}

/// End of a journal, up to which it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    pub(crate) point: Point,
}
