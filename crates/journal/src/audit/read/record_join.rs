//! Join of a journal's lines into records, without I/O: each use with its outcome.
//!
//! [`RecordStream`](super::stream::RecordStream) gives it the lines of the files. The simulation of many gateways gives
//! it those of disks in virtual time.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::journal_checkpoint::{self, JournalCheckpoint};
use crate::audit::format::begun_uses::BegunUse;
use crate::audit::format::event::UseEvent;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Record;
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::stream_position::StreamPosition;
use crate::audit::format::{decode, frame};
use domain::clock::Micros;

/// A position in a journal, and the uses that are open there. It belongs to one reader. Dropped, it loses nothing: a
/// position is enough to read on from.
///
/// - Each use in `young` was open when it was read, and gave no record since.
#[derive(Debug)]
pub struct RecordJoin {
    pub(super) at: StreamPosition,
    /// The gateway that writes the segment being read.
    gateway: Arc<str>,
    open: FxHashMap<u128, BegunUse>,
    /// Open uses that gave no record yet, in the order of their beginnings.
    young: VecDeque<u128>,
    /// Time for which a use is open before it gives a record `in_progress`; none: never.
    open_after: Option<Duration>,
    skipped_lines: u64,
}

/// Content of the part that is being read.
#[derive(Debug, Default)]
pub struct JoinedPart {
    /// The records, in the order of their completion; then those that are in progress.
    pub records: Vec<Record>,
    /// The checkpoints, in the order of their sizes.
    pub checkpoints: Vec<JournalCheckpoint>,
    /// Time of the last use that began in it.
    pub last_time: Option<Micros>,
}

impl RecordJoin {
    /// Begins at the beginning of a journal. A use that is open for `open_after` gives a record `in_progress`; with
    /// none, no use does.
    pub fn from_start(open_after: Option<Duration>) -> Self {
        Self::new(StreamPosition::START, Arc::default(), FxHashMap::default(), open_after)
    }

    /// Begins at a position, in a segment of a gateway, where these uses are open.
    pub(super) fn new(
        at: StreamPosition,
        gateway: Arc<str>,
        open: FxHashMap<u128, BegunUse>,
        open_after: Option<Duration>,
    ) -> Self {
        let mut young: Vec<(Micros, u128)> = open.iter().map(|(id, begun)| (begun.event.time, *id)).collect();
        young.sort_unstable();
        let young = young.into_iter().map(|(_, id)| id).collect();
        Self { at, gateway, open, young, open_after, skipped_lines: 0 }
    }

    /// The position up to which lines were read.
    pub fn position(&self) -> StreamPosition {
        self.at
    }

    /// Takes the number of damaged lines since the last call.
    pub(super) fn take_skipped_lines(&mut self) -> u64 {
        mem::take(&mut self.skipped_lines)
    }

    /// Reads the whole lines of a piece at the position; returns their length.
    pub fn read_lines(&mut self, piece: &[u8], part: &mut JoinedPart) -> usize {
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
        debug_assert!(
            last_line.is_none() || self.at.last_line < self.at.offset,
            "the last line is before the position"
        );
        whole
    }

    /// Handles a line; returns false when it is damaged, and what it says is missing.
    fn handle_line(&mut self, line: &[u8], part: &mut JoinedPart) -> bool {
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
    pub fn add_open(&mut self, present: Micros, records: &mut Vec<Record>) {
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
