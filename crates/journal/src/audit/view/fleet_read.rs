//! The records of all gateways at one moment: what PostgreSQL has, and what this gateway has not shipped.
//!
//! - Nothing is missing and nothing comes twice: the position of this gateway's journal is read in the transaction that
//!   reads the records, and a record that is in both has one id.
//! - The end of a use that is in progress in PostgreSQL shows when it is shipped, at this gateway as at the others.

use std::io;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::cursor::RecordPlace;
use super::fleet::{Fleet, FleetError, JournalRow, RecordQuery, Snapshot};
use super::source::JournalSource;
use super::status::{GatewayFreshness, OwnOnlyReason, ViewStatus};
use super::unshipped::Unshipped;
use crate::audit::format::record::Record;
use crate::audit::read::stop::StopSignal;

/// Reason why the records of all gateways cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FleetReadError {
    /// Those in PostgreSQL cannot be read.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// This gateway's journal cannot be read, or the read was abandoned.
    #[error(transparent)]
    Journal(#[from] io::Error),
    /// Too much of the journal is not shipped.
    #[error("{0} MiB of the audit journal are not in PostgreSQL yet; try again later")]
    Behind(u64),
}

/// One moment of the records of all gateways.
pub(super) struct FleetRead<'a> {
    pub(super) snapshot: Snapshot<'a>,
    /// The journal of this gateway, of which at most the budget is read.
    pub(super) unshipped: Unshipped<'a>,
    /// The journals that have shipped.
    journals: Vec<JournalRow>,
}

/// The first records of a query: of both sources, and of each id the one of the journal.
struct FirstRecords<'a> {
    query: RecordQuery<'a>,
    /// Those of PostgreSQL that the journal has not replaced.
    shipped: FxHashMap<Uuid, Record>,
    /// Those of the journal, of which there may be many more than a page has.
    own: Vec<Record>,
}

/// Records in their order, and the place from which to go on; `None` at the end.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) records: Vec<Record>,
    pub(super) reached: Option<RecordPlace>,
}

impl FleetReadError {
    /// The reason for which only the records of this gateway are shown.
    ///
    /// # Errors
    /// The error, when these cannot be read either.
    pub(super) fn into_reason(self) -> io::Result<OwnOnlyReason> {
        match self {
            Self::Fleet(_) => Ok(OwnOnlyReason::Unavailable),
            Self::Behind(_) => Ok(OwnOnlyReason::Behind),
            Self::Journal(error) => Err(error),
        }
    }
}

impl From<FleetReadError> for io::Error {
    fn from(error: FleetReadError) -> Self {
        match error {
            FleetReadError::Journal(error) => error,
            error => Self::other(error),
        }
    }
}

impl<'a> FleetRead<'a> {
    /// Begins to read. The journal is read up to its end afterwards, so that nothing is between.
    pub(super) fn begin(
        fleet: &'a Fleet,
        source: &'a JournalSource,
        stop: &'a StopSignal,
        budget: u64,
    ) -> Result<Self, FleetReadError> {
        stop.check()?;
        let id = source.identity()?;
        source.write_pending();
        let snapshot = fleet.snapshot()?;
        let journals = snapshot.journals()?;
        let own = journals.iter().filter(|row| Some(row.journal) == id).max_by_key(|row| row.position);
        let unshipped = Unshipped::new(source.directory(), own, stop)?;
        let length = unshipped.length()?;
        if length > budget {
            return Err(FleetReadError::Behind(length >> 20));
        }
        Ok(Self { snapshot, unshipped, journals })
    }

    /// The first records of a query.
    pub(super) fn find(self, query: RecordQuery<'_>) -> Result<(Found, ViewStatus), FleetReadError> {
        let Self { snapshot, unshipped, journals } = self;
        let (shipped, reached) = snapshot.records(&query)?;
        snapshot.finish();
        let mut found = FirstRecords::new(query, shipped);
        unshipped.read(query.filter, &mut |record| found.add(record))?;
        Ok((found.finish(reached), ViewStatus::fleet(freshness(journals))))
    }

    /// Ends the read, and keeps the connection.
    pub(super) fn finish(self) -> ViewStatus {
        self.snapshot.finish();
        ViewStatus::fleet(freshness(self.journals))
    }
}

impl<'a> FirstRecords<'a> {
    /// Begins with the records that PostgreSQL has found.
    fn new(query: RecordQuery<'a>, shipped: Vec<Record>) -> Self {
        let shipped = shipped.into_iter().map(|record| (record.id, record)).collect();
        Self { query, shipped, own: Vec::new() }
    }

    /// Adds a use of the journal that matches the filter but for its outcome. Each comes once.
    fn add(&mut self, record: Record) {
        let RecordQuery { filter, from, behind, limit } = self.query;
        let place = RecordPlace::of(&record);
        self.shipped.remove(&record.id);
        if behind.is_none_or(|behind| from.is_nearer(behind, place)) && filter.matches_outcome(&record) {
            self.own.push(record);
        }
        let most = limit as usize + 1;
        if self.own.len() >= 2 * most {
            from.sort(&mut self.own);
            self.own.truncate(most);
        }
    }

    /// The records in their order, as far as PostgreSQL has looked.
    fn finish(self, mut reached: Option<RecordPlace>) -> Found {
        let Self { query: RecordQuery { from, limit, .. }, shipped, own } = self;
        let mut records: Vec<Record> = shipped.into_values().chain(own).collect();
        from.sort(&mut records);
        if let Some(reached) = reached {
            records.retain(|record| !from.is_nearer(reached, RecordPlace::of(record)));
        }
        if records.len() > limit as usize {
            records.truncate(limit as usize);
            reached = records.last().map(RecordPlace::of);
        }
        Found { records, reached }
    }
}

/// The freshness of each gateway. A gateway that has lost its disk has more than one journal.
pub(super) fn freshness(journals: Vec<JournalRow>) -> Vec<GatewayFreshness> {
    let mut gateways: Vec<GatewayFreshness> = Vec::new();
    for JournalRow { gateway, complete_until, updated, .. } in journals {
        match gateways.last_mut().filter(|last| last.gateway == gateway) {
            Some(last) if last.updated >= updated => {}
            Some(last) => {
                last.complete_until = complete_until;
                last.updated = updated;
            }
            None => gateways.push(GatewayFreshness { gateway, complete_until, updated }),
        }
    }
    gateways
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audit::filter::Filter;
    use crate::audit::view::fleet::End;
    use domain::clock::Micros;

    fn record(time: u64, id: u128, outcome: &str) -> Record {
        let id = Uuid::from_u128(id);
        let json = format!(
            r#"{{"id":"{id}","time":"{}","key_id":null,"user_id":null,"org_id":null,"auth_method":"api-key","ip":null,
            "user_agent":null,"action":"a","method":"GET","path":"/","outcome":"{outcome}","status":null,
            "duration_us":null,
            "request_bytes":null,"response_bytes":null,"gateway":"g"}}"#,
            Micros(time)
        );
        serde_json::from_str(&json).unwrap()
    }

    proptest! {
        /// Page after page, whatever is shipped of the journal, and however much of it is not.
        #[test]
        fn pages_are_the_sorted_list(
            places in prop::collection::btree_map(0_u128..200, (0_u64..20, 0..3_u8), 0..120),
            limit in 1_u32..8,
            newest: bool,
        ) {
            let from = if newest { End::Newest } else { End::Oldest };
            let filter = Filter::default();
            // In PostgreSQL, in the journal, or in both: then as one that has ended since.
            let of = |kinds: [u8; 2], outcome: &str| {
                let matching = places.iter().filter(|(_, (_, kind))| kinds.contains(kind));
                let mut records: Vec<Record> = matching.map(|(id, (time, _))| record(*time, *id, outcome)).collect();
                from.sort(&mut records);
                records
            };
            let (shipped, own) = (of([0, 2], "in_progress"), of([1, 2], "completed"));
            let mut query = RecordQuery { limit, ..RecordQuery::new(&filter, from) };
            let mut listed = Vec::new();
            loop {
                let is_behind = |record: &&Record| {
                    query.behind.is_none_or(|behind| from.is_nearer(behind, RecordPlace::of(record)))
                };
                let rows: Vec<Record> = shipped.iter().filter(is_behind).take(limit as usize).cloned().collect();
                let reached = rows.last().filter(|_| rows.len() == limit as usize).map(RecordPlace::of);
                let mut first = FirstRecords::new(query, rows);
                own.iter().rev().cloned().for_each(|record| first.add(record));
                let found = first.finish(reached);
                prop_assert!(found.records.len() <= limit as usize);
                listed.extend(found.records);
                if found.reached.is_none() {
                    break;
                }
                query.behind = found.reached;
            }
            let is_own = |record: &Record| own.iter().any(|own| own.id == record.id);
            let mut expected: Vec<Record> = shipped.into_iter().filter(|record| !is_own(record)).collect();
            expected.extend(own.iter().cloned());
            from.sort(&mut expected);
            prop_assert_eq!(listed, expected);
        }
    }
}
