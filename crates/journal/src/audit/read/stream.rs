//! Stream of the journal's records, for sinks: from a position on, across segments and restarts.
//!
//! - Each use gives one record when its outcome is known. One that stays open for longer gives a record `in_progress`
//!   before that, when the caller wants it.
//! - A position is enough to go on from: the uses that are open there are read again ([`begun_uses`]).
//! - It reads up to the end that the writer states, so that no line is delivered that is then withdrawn.

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::journal_checkpoint::JournalCheckpoint;
use super::record_join::{JoinedPart, RecordJoin};
use crate::audit::format::begun_uses;
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, BLOCK, Block, Point};
use crate::audit::format::source::{self, Piece, SegmentSource};
use crate::audit::format::stream_position::StreamPosition;
use crate::files;
use domain::clock::Micros;

/// Stream of the journal's records.
#[derive(Debug)]
pub struct RecordStream {
    directory: PathBuf,
    /// The position, and what is open there.
    join: RecordJoin,
    piece: Piece,
    /// Segments that are missing, since the last part.
    skipped: u64,
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
        let (at, has_lost_lines) = find_start(directory, from, end.point)?;
        let header = crate::audit::format::open_uses::read_header(directory, at.segment)?;
        let open = begun_uses::open_at(directory, at.point())?;
        let gateway = header.map_or_else(Arc::default, |header| header.gateway.as_ref().into());
        Ok(Self {
            directory: directory.to_owned(),
            join: RecordJoin::new(at, gateway, open, open_after),
            piece: Piece::default(),
            // Segments between the position and the first that is there were removed before they were read.
            skipped: if from.segment > 0 { at.segment.saturating_sub(from.segment) } else { 0 },
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
        self.join.at
    }

    /// Reads on, up to about `limit` records or the end of the journal. After an error, the stream
    /// must be opened again.
    ///
    /// # Errors
    /// If the segments cannot be read.
    pub fn next_batch(&mut self, end: JournalEnd, limit: usize, now: Micros) -> io::Result<StreamBatch> {
        let mut part = JoinedPart::default();
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
            self.join.add_open(present, &mut part.records);
        }
        let JoinedPart { records, checkpoints, last_time } = part;
        let skipped_segments = mem::take(&mut self.skipped);
        let skipped_lines = self.join.take_skipped_lines();
        let position = self.join.at;
        Ok(StreamBatch { records, checkpoints, position, last_time, reached_end, skipped_segments, skipped_lines })
    }

    /// Reads one block; returns false at the end of the journal.
    fn read_block(&mut self, end: Point, part: &mut JoinedPart) -> io::Result<bool> {
        if self.join.at.point() >= end {
            return Ok(false);
        }
        let limit = if self.join.at.segment == end.segment { end.offset } else { u64::MAX };
        let to = limit.min(self.join.at.offset + BLOCK);
        let block = Block { segment: self.join.at.segment, start: self.join.at.offset, end: to };
        let mut piece = mem::take(&mut self.piece);
        let read = match source::read_block(&self.directory, block, &mut piece) {
            // Unreadable lines will not be readable later: the rest of the segment is left out, and counted.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(%error, segment = self.join.at.segment,
                    "a damaged part of the audit journal cannot be shipped; see `keygate audit verify`");
                self.skipped += 1;
                0
            }
            read => {
                read?;
                self.join.read_lines(&piece, part)
            }
        };
        self.piece = piece;
        if read > 0 {
            return Ok(true);
        }
        self.enter_next_segment(end)
    }

    /// Goes on to the next segment that is there; returns false when there is none up to the end.
    fn enter_next_segment(&mut self, end: Point) -> io::Result<bool> {
        if self.join.at.segment >= end.segment {
            return Ok(false);
        }
        let files = segment::list_files(&self.directory)?;
        let next = files.iter().map(|file| file.number).find(|number| *number > self.join.at.segment);
        let next = next.unwrap_or(end.segment).min(end.segment);
        if self.join.at.segment > 0 {
            self.skipped += next - self.join.at.segment - 1;
        }
        self.join.at = self.join.at.at_segment(next);
        Ok(true)
    }
}

/// End of a journal, up to which it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    pub(crate) point: Point,
}

/// The position from which to read on, in the journal as it is now, and whether it no longer has the lines before it.
fn find_start(directory: &Path, from: StreamPosition, end: Point) -> io::Result<(StreamPosition, bool)> {
    if from.segment > end.segment {
        return Ok((from.at_segment(end.segment), true));
    }
    let files = segment::list_files(directory)?;
    let first = files.iter().map(|file| file.number).find(|number| *number >= from.segment);
    Ok(match first {
        Some(first) if first > from.segment => (from.at_segment(first), false),
        Some(_) if from.offset == 0 || has_last_line(directory, &from)? => (from, false),
        // The journal has lost its end there: what is in the segment now comes from its beginning.
        Some(_) => (from.at_segment(from.segment), true),
        None => (from.at_segment(end.segment), true),
    })
}

/// Returns whether the last line before a position is the one that was read.
fn has_last_line(directory: &Path, position: &StreamPosition) -> io::Result<bool> {
    let length = position.offset.checked_sub(position.last_line).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > 0) else { return Ok(false) };
    let source = files::if_intact(SegmentSource::open(directory, position.segment))?.flatten();
    let Some(mut source) = source else { return Ok(false) };
    let mut line = vec![0; length];
    let read = files::fill(&mut line, position.last_line, |out, at| source.read_at(out, at));
    let is_whole = files::if_intact(read)? == Some(length);
    Ok(is_whole && position.has_read(&line))
}
