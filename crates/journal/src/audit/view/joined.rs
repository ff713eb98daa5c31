//! The records of all gateways: those in the database, joined with those that this gateway has not shipped.
//!
//! - Nothing is missing and nothing comes twice: the position of this gateway's journal is read in the transaction that
//!   reads the records, and a record that is in both has one id.
//! - The outcomes that this gateway's uses in progress have had since are taken from its journal.

use std::io;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use super::fleet::{Fleet, FleetError, JournalRow, RecordQuery, Snapshot};
use super::order::{FirstRecords, RecordPlace};
use super::rest::Rest;
use super::source::JournalSource;
use super::status::{GatewayFreshness, OwnOnlyReason, ViewStatus};
use crate::audit::filter::Filter;
use crate::audit::format::event::OutcomeEvent;
use crate::audit::format::record::Record;
use crate::audit::read::stop::StopSignal;

/// Reason why records cannot be joined.
#[derive(Debug, thiserror::Error)]
pub(super) enum JoinError {
    /// The records of all gateways cannot be read.
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
pub(super) struct Joined<'a> {
    pub(super) snapshot: Snapshot<'a>,
    pub(super) directory: &'a Path,
    /// The journals that have shipped.
    journals: Vec<JournalRow>,
    /// The journal of this gateway, once it has shipped.
    own: Option<JournalRow>,
    stop: &'a StopSignal,
    /// Bytes of the journal that are read at most.
    budget: u64,
}

/// Records in their order, and the place from which to go on where few of those looked through did match.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) records: Vec<Record>,
    pub(super) reached: Option<RecordPlace>,
}

impl JoinError {
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

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Journal(error) => error,
            error => Self::other(error),
        }
    }
}

impl<'a> Joined<'a> {
    /// Begins to read.
    pub(super) fn begin(
        fleet: &'a Fleet,
        source: &'a JournalSource,
        stop: &'a StopSignal,
        budget: u64,
    ) -> Result<Self, JoinError> {
        stop.check()?;
        let id = source.identity()?;
        source.write_pending();
        let snapshot = fleet.snapshot()?;
        let journals = snapshot.journals()?;
        let own = journals.iter().filter(|row| Some(row.journal) == id).max_by_key(|row| row.position).cloned();
        Ok(Self { snapshot, directory: source.directory(), journals, own, stop, budget })
    }

    /// Ends the read, and keeps the connection.
    pub(super) fn finish(self) -> ViewStatus {
        self.snapshot.finish();
        ViewStatus::fleet(freshness(self.journals))
    }

    /// The first records of a query.
    pub(super) fn find(&self, query: RecordQuery<'_>) -> Result<Found, JoinError> {
        let RecordQuery { filter, from, behind, limit, .. } = query;
        let gateway = self.own.as_ref().map(|own| own.gateway.as_str());
        let query = RecordQuery { is_bounded: true, without_open_of: gateway, ..query };
        let mut first = FirstRecords::new(from, behind, limit as usize);
        let open = gateway.map(|gateway| self.snapshot.open_uses(&query, gateway)).transpose()?.unwrap_or_default();
        let awaited = open.iter().map(|record| record.id.as_u128()).collect();
        let outcomes = self.read_rest(filter, awaited, &mut |record| first.add(record))?;
        open.into_iter()
            .map(|record| complete(record, &outcomes))
            .filter(|record| filter.matches_end(record))
            .for_each(|record| first.add(record));
        let (shipped, reached) = self.snapshot.records(&query)?;
        shipped.into_iter().for_each(|record| first.add(record));
        let mut records = first.into_records();
        if let Some(reached) = reached {
            records.retain(|record| from.distance(RecordPlace::of(record)) <= from.distance(reached));
        }
        Ok(Found { records, reached })
    }

    /// Reads the records of this gateway that the database does not have, and returns the outcomes of awaited uses.
    pub(super) fn read_rest(
        &self,
        filter: &Filter,
        awaited: FxHashSet<u128>,
        each: &mut dyn FnMut(Record),
    ) -> Result<FxHashMap<u128, OutcomeEvent>, JoinError> {
        let rest = Rest::new(self.directory, self.own.as_ref(), self.stop)?;
        let length = rest.length()?;
        if length > self.budget {
            return Err(JoinError::Behind(length >> 20));
        }
        Ok(rest.read(filter, awaited, each)?)
    }

    /// True when this gateway recorded it.
    pub(super) fn is_own(&self, record: &Record) -> bool {
        self.own.as_ref().is_some_and(|own| own.gateway == record.gateway)
    }
}

/// The record with its outcome, when that is known.
pub(super) fn complete(record: Record, outcomes: &FxHashMap<u128, OutcomeEvent>) -> Record {
    let Some(ended) = outcomes.get(&record.id.as_u128()) else { return record };
    let OutcomeEvent { id: _, outcome, status, duration_us, request_bytes, response_bytes, settled } = *ended;
    let cost = settled.map_or(record.cost, |settled| Some(settled.cost));
    Record { outcome, status, duration_us, request_bytes, response_bytes, cost, ..record }
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
