//! Journal of a machine: the lines of beginnings and outcomes, and the files of its shipper's position.
//!
//! A model: a line is a value, and the offset of a line is its number.

use std::collections::BTreeMap;

use journal::audit::StreamPosition;

/// A line of a journal.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    /// The use with this id, forwarded at this time.
    Use {
        id: u64,
        time: u64,
    },
    Outcome {
        id: u64,
        time: u64,
    },
}

/// Journal of one machine. It survives the process.
#[derive(Default)]
pub struct Journal {
    /// Number of the journal: another for each disk.
    pub number: u64,
    pub lines: Vec<Line>,
    /// File of the shipper: its position, or the copy of one that the sink keeps.
    pub position_file: Option<StreamPosition>,
}

/// The journal, read by a shipper from a position on.
#[derive(Default)]
pub struct Stream {
    at: usize,
    /// Uses before the position that have no outcome before it, with their times; with `true`,
    /// delivered as in progress.
    open: BTreeMap<u64, (u64, bool)>,
}

/// Part of a journal.
#[derive(Clone, Debug)]
pub struct Part {
    pub from: StreamPosition,
    pub to: StreamPosition,
    pub reached_end: bool,
    /// Ids; with `true`, the use has ended.
    pub records: Vec<(u64, bool)>,
}

/// Records of a part, about, as in `crates/journal/src/shipping/shipper.rs`.
const LIMIT: usize = 8192;

fn position(line: usize) -> StreamPosition {
    let line = line as u64;
    StreamPosition { segment: 1, offset: line, line, ..StreamPosition::START }
}

impl Journal {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Opens the journal at a position; the uses that are open there are read again.
    pub fn open_at(&self, at: StreamPosition) -> Stream {
        let mut stream = Stream { at: at.line as usize, open: BTreeMap::new() };
        for line in &self.lines[..stream.at] {
            match *line {
                Line::Use { id, time } => drop(stream.open.insert(id, (time, false))),
                Line::Outcome { id, .. } => drop(stream.open.remove(&id)),
            }
        }
        stream
    }

    /// The next part, as `RecordStream::next_batch` makes it: records whose outcome is known, then those that have
    /// been open for `open_after`, if the sink takes them.
    pub fn read(&self, stream: &mut Stream, from: StreamPosition, now: u64, open_after: Option<u64>) -> Part {
        let mut records = Vec::new();
        while stream.at < self.lines.len() && records.len() < LIMIT {
            match self.lines[stream.at] {
                Line::Use { id, time } => drop(stream.open.insert(id, (time, false))),
                Line::Outcome { id, .. } => {
                    if stream.open.remove(&id).is_some() {
                        records.push((id, true));
                    }
                }
            }
            stream.at += 1;
        }
        for (id, (time, delivered)) in &mut stream.open {
            if !*delivered && open_after.is_some_and(|open_after| *time + open_after <= now) {
                *delivered = true;
                records.push((*id, false));
            }
        }
        Part { from, to: position(stream.at), reached_end: stream.at == self.lines.len(), records }
    }

    /// The uses that were open when the process died, which the next one ends as aborted.
    pub fn end_open(&mut self, time: u64) {
        let mut open: BTreeMap<u64, ()> = BTreeMap::new();
        for line in &self.lines {
            match *line {
                Line::Use { id, .. } => drop(open.insert(id, ())),
                Line::Outcome { id, .. } => drop(open.remove(&id)),
            }
        }
        self.lines.extend(open.into_keys().map(|id| Line::Outcome { id, time }));
    }
}
