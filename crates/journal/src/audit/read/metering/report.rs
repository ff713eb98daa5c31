//! Usage by period and subject, and how much of it is final.

use super::period::PeriodSpan;
use super::query::UsageQuery;
use super::tally::UsageRow;
use domain::clock::Micros;

/// Usage by period and subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReport {
    /// The question.
    pub query: UsageQuery,
    /// The rows, by period, gateway and subject.
    pub rows: Vec<UsageRow>,
    /// The time from which on all records are there; `None` when they are in the whole range.
    pub complete_from: Option<Micros>,
    /// The time before which no further record can appear.
    pub settled_before: Micros,
    /// Number of damaged lines among those that were read.
    pub damaged_lines: u64,
}

impl UsageReport {
    /// True when a row cannot change any more, and lacks nothing: its whole period was asked for and is in the journal,
    /// the period is over, and all of its uses have ended.
    pub fn is_final(&self, row: &UsageRow) -> bool {
        let PeriodSpan { start, end } = row.period;
        let has_all = self.query.since.is_none_or(|since| since <= start)
            && self.query.until.is_none_or(|until| until >= end)
            && self.complete_from.is_none_or(|from| from <= start)
            && self.damaged_lines == 0;
        has_all && end <= self.settled_before && row.open == 0
    }
}
