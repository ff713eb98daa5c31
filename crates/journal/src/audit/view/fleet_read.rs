//! The records of all gateways at one moment: what PostgreSQL has, and what this gateway has not shipped.
//!
//! - Nothing is missing and nothing comes twice: the position of this gateway's journal is read in the transaction that
//!   reads the records, and a record that is in both has one id.
//! - The end of a use that is in progress in PostgreSQL shows when it is shipped, at this gateway as at the others.

use std::io;
use std::path::Path;

use rustc_hash::FxHashSet;

use super::cursor::RecordPlace;
use super::fleet::{Fleet, FleetError, JournalRow, RecordQuery, Snapshot};
use super::source::JournalSource;
use super::status::{GatewayFreshness, OwnOnlyReason, ViewStatus};
use super::unshipped::Unshipped;
use crate::audit::filter::Filter;
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
    directory: &'a Path,
    /// The journals that have shipped.
    journals: Vec<JournalRow>,
    /// The journal of this gateway, once it has shipped.
    own: Option<JournalRow>,
    stop: &'a StopSignal,
    /// Bytes of the journal that are read at most.
    budget: u64,
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
        let own = journals.iter().filter(|row| Some(row.journal) == id).max_by_key(|row| row.position).cloned();
        Ok(Self { snapshot, directory: source.directory(), journals, own, stop, budget })
    }

    /// Ends the read, and keeps the connection.
    pub(super) fn finish(self) -> ViewStatus {
        self.snapshot.finish();
        ViewStatus::fleet(freshness(self.journals))
    }

    /// The first records of a query.
    pub(super) fn find(&self, query: RecordQuery<'_>) -> Result<Found, FleetReadError> {
        let RecordQuery { filter, from, behind, .. } = query;
        let limit = query.limit as usize;
        let (mut records, mut reached) = self.snapshot.records(&query)?;
        let (mut own, mut ids) = (Vec::new(), FxHashSet::default());
        self.read_unshipped(filter, &mut |record| {
            ids.insert(record.id);
            let is_behind = behind.is_none_or(|behind| from.is_nearer(behind, RecordPlace::of(&record)));
            if is_behind && filter.matches_outcome(&record) {
                own.push(record);
            }
            // Much may be unshipped, of which a page shows a little.
            if own.len() > limit.saturating_mul(2) {
                from.sort(&mut own);
                own.truncate(limit);
            }
        })?;
        records.retain(|record| !ids.contains(&record.id));
        records.append(&mut own);
        from.sort(&mut records);
        if let Some(reached) = reached {
            records.retain(|record| !from.is_nearer(reached, RecordPlace::of(record)));
        }
        if records.len() > limit {
            records.truncate(limit);
            reached = records.last().map(RecordPlace::of);
        }
        Ok(Found { records, reached })
    }

    /// Calls `each` with the uses of this gateway that match a filter but for their outcomes, of all that PostgreSQL
    /// does not have, and of some that it has.
    pub(super) fn read_unshipped(&self, filter: &Filter, each: &mut dyn FnMut(Record)) -> Result<(), FleetReadError> {
        let unshipped = Unshipped::new(self.directory, self.own.as_ref(), self.stop)?;
        let length = unshipped.length()?;
        if length > self.budget {
            return Err(FleetReadError::Behind(length >> 20));
        }
        Ok(unshipped.read(filter, each)?)
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
