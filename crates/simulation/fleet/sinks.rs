//! Sinks of the audit: the PostgreSQL of most gateways, and the webhooks' receiver of the others.
//!
//! Models, as `crates/journal/src/shipping/postgresql/record_table.rs` and `webhook.rs` use them: the table keeps the
//! position of a journal, and moves it in the transaction of the records; the receiver keeps none, and knows the ids.

use journal::audit::{Outcome, StreamPosition};
use rustc_hash::FxHashMap;

/// Sink of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    Table,
    Receiver,
}

impl SinkKind {
    /// Every fourth gateway ships to the receiver.
    pub fn of_gateway(number: usize) -> Self {
        if number % 4 == 3 { Self::Receiver } else { Self::Table }
    }
}

/// Part of a journal.
#[derive(Clone, Debug)]
pub struct Part {
    pub from: StreamPosition,
    pub to: StreamPosition,
    /// Ids of requests, with the outcomes of their uses.
    pub records: Vec<(u64, Outcome)>,
}

/// The sinks, which are away together.
#[derive(Default)]
pub struct Sinks {
    /// They are away until this time, and were until then.
    pub away_until: u64,
    /// Positions of journals in the table.
    positions: FxHashMap<u64, StreamPosition>,
    /// Outcomes by id.
    pub rows: FxHashMap<u64, Outcome>,
    /// Ended rows that came again, and were known.
    pub repeated: u64,
    /// Parts of which the table had taken others meanwhile.
    pub overtaken: u64,
}

impl Sinks {
    pub fn position(&self, journal: u64) -> StreamPosition {
        self.positions.get(&journal).copied().unwrap_or(StreamPosition::START)
    }

    /// One transaction: moves the position, and adds the rows. Returns false when the position is another one.
    pub fn commit(&mut self, journal: u64, part: &Part) -> bool {
        if self.position(journal) != part.from {
            self.overtaken += 1;
            return false;
        }
        self.positions.insert(journal, part.to);
        self.take(part);
        true
    }

    /// Takes records by their ids. What has ended stays as it is.
    pub fn take(&mut self, part: &Part) {
        for (id, outcome) in &part.records {
            let row = self.rows.entry(*id).or_insert(Outcome::InProgress);
            if *row == Outcome::InProgress {
                *row = *outcome;
            } else {
                self.repeated += 1;
            }
        }
    }

    /// Moves the position without the rows: for the run that breaks the audit.
    pub fn skip(&mut self, journal: u64, part: &Part) {
        self.positions.insert(journal, part.to);
    }
}
