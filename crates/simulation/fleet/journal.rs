//! Journal of a gateway, its shipper, and the PostgreSQL that all of them ship to.
//!
//! The journal and the table are models: lines of beginnings and outcomes, rows by id, and the position that the table
//! keeps in the transaction of the rows. The pauses of the shipper are the product's.

use std::collections::BTreeMap;

use journal::shipping::Backoff;
use rustc_hash::FxHashMap;

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
    },
}

/// Journal of one machine. It survives the process.
#[derive(Default)]
pub struct Journal {
    /// Number of the journal: another for each disk.
    pub number: u64,
    pub lines: Vec<Line>,
    pub backoff: Backoff,
    /// Position of the shipper; none until it is connected to the table.
    pub position: Option<usize>,
    /// Uses before the position that have no outcome before it, with their times; with `true`,
    /// delivered as in progress.
    pub open: BTreeMap<u64, (u64, bool)>,
    /// The batch that is being delivered.
    pub batch: Option<Batch>,
}

/// Records that are delivered together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub number: u64,
    pub from: usize,
    pub to: usize,
    /// Ids; with `true`, the use has ended.
    pub records: Vec<(u64, bool)>,
}

/// Records of a batch, about, as in `crates/journal/src/shipping/shipper.rs`.
const BATCH: usize = 8192;

impl Journal {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Goes to the position that the table has; the uses that are open there are read again.
    pub fn open_at(&mut self, position: usize) {
        self.open.clear();
        for line in &self.lines[..position] {
            match *line {
                Line::Use { id, time } => drop(self.open.insert(id, (time, false))),
                Line::Outcome { id } => drop(self.open.remove(&id)),
            }
        }
        self.position = Some(position);
    }

    /// The next batch, as `RecordStream::next_batch` makes it: records whose outcome is known, then those that have
    /// been open for `open_after`. None when there is nothing to deliver.
    pub fn next_batch(&mut self, number: u64, now: u64, open_after: u64) -> Option<Batch> {
        let from = self.position?;
        let mut to = from;
        let mut records = Vec::new();
        while to < self.lines.len() && records.len() < BATCH {
            match self.lines[to] {
                Line::Use { id, time } => drop(self.open.insert(id, (time, false))),
                Line::Outcome { id } => {
                    if self.open.remove(&id).is_some() {
                        records.push((id, true));
                    }
                }
            }
            to += 1;
        }
        for (id, (time, delivered)) in &mut self.open {
            if !*delivered && *time + open_after <= now {
                *delivered = true;
                records.push((*id, false));
            }
        }
        (to > from || !records.is_empty()).then_some(Batch { number, from, to, records })
    }

    /// The uses that were open when the process died, which the next one ends as aborted.
    pub fn end_open(&mut self) {
        let mut open: BTreeMap<u64, ()> = BTreeMap::new();
        for line in &self.lines {
            match *line {
                Line::Use { id, .. } => drop(open.insert(id, ())),
                Line::Outcome { id } => drop(open.remove(&id)),
            }
        }
        self.lines.extend(open.into_keys().map(|id| Line::Outcome { id }));
        (self.position, self.batch) = (None, None);
    }
}

/// The database.
#[derive(Default)]
pub struct Postgres {
    /// It is away until this time, and was until then.
    pub away_until: u64,
    positions: FxHashMap<u64, usize>,
    /// Rows by id; with `true`, the use has ended.
    pub rows: FxHashMap<u64, bool>,
    /// Rows that a second delivery would have added.
    pub repeated: u64,
}

impl Postgres {
    pub fn position(&self, journal: u64) -> usize {
        self.positions.get(&journal).copied().unwrap_or(0)
    }

    /// One transaction: moves the position, and adds the rows. Fails when the position is another one.
    pub fn commit(&mut self, journal: u64, batch: &Batch) -> bool {
        if self.position(journal) != batch.from {
            return false;
        }
        self.positions.insert(journal, batch.to);
        for (id, ended) in &batch.records {
            let row = self.rows.entry(*id).or_insert(false);
            self.repeated += u64::from(*row);
            *row |= *ended;
        }
        true
    }

    /// Moves the position without the rows: for the run that breaks the audit.
    pub fn skip(&mut self, journal: u64, batch: &Batch) {
        self.positions.insert(journal, batch.to);
    }
}
