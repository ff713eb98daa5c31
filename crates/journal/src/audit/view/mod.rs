//! The reading interface of the audit, for management, the dashboard, the admin socket and the command line.
//!
//! ```text
//!                  no PostgreSQL:  journal ------------------> records, in the order of the journal
//! AuditView --+--  PostgreSQL:     keygate.records, and what is not shipped yet --> records of all gateways
//!             |                    sums of them in a file (rollup) --> usage in a range of time
//!             +--  PostgreSQL away, or far behind:  journal --> records of this gateway; the status says so
//! ```
//!
//! - [`fleet`]: the records of all gateways in PostgreSQL; [`unshipped`]: what this gateway has not shipped;
//!   [`fleet_read`]: both at one moment.
//! - [`cursor`]: places in a listing. [`status`]: which records a view has, how fresh.
//! - [`missing`]: explains a request id that no record has.
//! - [`activity`]: counts and last uses of keys; [`usage`]: usage to bill by; [`follower`]: what is recorded while one
//!   watches.
//! - Calls block, up to a deadline: run them on a thread that may wait.

mod activity;
mod cursor;
mod fleet;
mod fleet_read;
mod follower;
mod missing;
mod range_usage;
mod source;
mod status;
mod unshipped;
mod usage;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::filter::Filter;
use super::format::record::{Outcome, Record};
use super::read::activity::KeyActivity;
use super::read::stop::StopSignal;
use super::write::journal::Journal;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

pub use cursor::{InvalidPlace, JournalWalk, RecordPlace, ViewCursor};
pub use fleet::{Fleet, OpenFleetError};
pub use follower::ViewFollower;
pub use missing::{MissingReason, MissingRecord};
pub use status::{GatewayFreshness, OwnOnlyReason, ViewScope, ViewStatus};

use fleet::{End, MAX_ROWS, RecordQuery, Rollup};
use fleet_read::{FleetRead, FleetReadError, Found};
use follower::OtherGateways;
use source::JournalSource;

/// View of the audit. Clones share what they read from.
#[derive(Clone, Debug)]
pub struct AuditView {
    journal: JournalSource,
    /// The records of all gateways; `None` when only this gateway's journal is read. A reload may replace it.
    fleet: Arc<ArcSwapOption<Fleet>>,
    /// Sums of the records of all gateways.
    rollup: Arc<Rollup>,
    stop: StopSignal,
}

/// Bytes of the journal that a list may read.
#[derive(Clone, Copy)]
struct ReadBudget {
    /// Bytes that are looked through where only this gateway's records are listed.
    scan: u64,
    /// Bytes that are not shipped yet, all of which are read where the records of all gateways are listed.
    unshipped: u64,
}

impl ReadBudget {
    fn of(bytes: u64) -> Self {
        Self { scan: bytes, unshipped: bytes }
    }
}

/// A page of records, newest first.
#[derive(Clone, Debug)]
pub struct ViewPage {
    /// The records: as many as the limit allows, fewer at the end of the audit or when the budget was used up.
    pub records: Vec<Record>,
    /// Cursor for older records; `None` when there are none.
    pub next: Option<ViewCursor>,
    /// Scope and freshness; `None` when only this gateway's journal is configured to be read.
    pub status: Option<ViewStatus>,
    /// Explanation of the id of the filter, which no record has; only of the first page of such a filter.
    pub missing: Option<MissingRecord>,
}

/// Activity of keys.
#[derive(Clone, Debug)]
pub struct ViewActivity {
    /// The activity of each requested key.
    pub keys: HashMap<KeyId, KeyActivity>,
    /// As in [`ViewPage`].
    pub status: Option<ViewStatus>,
}

impl AuditView {
    /// Reads what this process writes.
    pub fn of_journal(journal: Journal) -> Self {
        Self::new(JournalSource::Journal(journal))
    }

    /// Reads the journal in a directory.
    ///
    /// # Errors
    /// If the directory does not exist or may not be read.
    pub fn of_directory(directory: &Path) -> io::Result<Self> {
        Ok(Self::new(JournalSource::open(directory)?))
    }

    /// Reads the records of all gateways only: the journal that would be in this directory is not there.
    pub fn without_journal(directory: &Path) -> Self {
        Self::new(JournalSource::Directory(directory.to_owned()))
    }

    fn new(journal: JournalSource) -> Self {
        let fleet = Arc::<ArcSwapOption<Fleet>>::default();
        let rollup = Arc::new(Rollup::new(journal.directory().to_owned(), fleet.clone()));
        Self { journal, fleet, rollup, stop: StopSignal::default() }
    }

    /// Reads the records of all gateways from here on, in all clones; `None`: this gateway's.
    pub fn set_fleet(&self, fleet: Option<Fleet>) {
        self.fleet.store(fleet.map(Arc::new));
    }

    /// The same view, whose reads fail soon after the signal to stop.
    #[must_use]
    pub fn with_stop(self, stop: StopSignal) -> Self {
        Self { stop, ..self }
    }

    /// Lists up to `limit` records, newest first; with `before`, those older than the cursor. Reads about `budget`
    /// bytes of the journal at most, as [`Reader::list_within`](super::Reader::list_within) does, and about as many
    /// records of all gateways. A listing that began with the records of this gateway alone goes on with them.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn list(&self, filter: &Filter, limit: usize, before: Option<ViewCursor>, budget: u64) -> io::Result<ViewPage> {
        let Some(id) = filter.id.filter(|_| before.is_none() && limit > 0) else {
            return self.list_records(filter, limit, before, ReadBudget::of(budget));
        };
        // Up to three lists explain an id: together they keep to the budget.
        let part = if budget == u64::MAX { budget } else { budget / 4 };
        let budget = ReadBudget { scan: part, ..ReadBudget::of(budget) };
        let page = self.list_records(filter, limit, before, budget)?;
        if !page.records.is_empty() {
            return Ok(page);
        }
        let missing = self.explain_missing(id, filter, page.next.is_some(), budget)?;
        Ok(ViewPage { missing: Some(missing), ..page })
    }

    /// Explains the id of a filter of which a search to the end of the audit, as an export, has found no record; `None`
    /// without an id.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn explain(&self, filter: &Filter) -> io::Result<Option<MissingRecord>> {
        let explain = |id| self.explain_missing(id, filter, false, ReadBudget::of(u64::MAX));
        filter.id.map(explain).transpose()
    }

    fn list_records(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<ViewCursor>,
        budget: ReadBudget,
    ) -> io::Result<ViewPage> {
        let Some(fleet) = self.fleet.load_full() else { return self.list_own(filter, limit, before, budget, None) };
        let behind = match before {
            Some(ViewCursor::Journal(_)) => {
                return self.list_own(filter, limit, before, budget, Some(OwnOnlyReason::Cursor));
            }
            Some(ViewCursor::Fleet(place)) => Some(place),
            None => None,
        };
        match self.list_fleet(&fleet, filter, limit, behind, budget) {
            Ok(page) => Ok(page),
            Err(error) => self.list_own(filter, limit, before, budget, Some(error.into_reason()?)),
        }
    }

    /// Calls `each` with every matching record, oldest first. Memory is bounded. Returns scope and freshness, as in
    /// [`ViewPage`].
    ///
    /// # Errors
    /// If the journal cannot be read, or the records of all gateways not to their end; and any error of `each`.
    pub fn export(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Record) -> io::Result<()>,
    ) -> io::Result<Option<ViewStatus>> {
        let own = |each: &mut dyn FnMut(Record) -> io::Result<()>| {
            self.journal.reader()?.with_stop(self.stop.clone()).export(filter, each)
        };
        let Some(fleet) = self.fleet.load_full() else { return own(each).map(|()| None) };
        let mut query = RecordQuery::new(filter, End::Oldest);
        loop {
            let (found, status) = match self.find(&fleet, query, u64::MAX) {
                Ok(found) => found,
                // Nothing was exported yet.
                Err(error) if query.behind.is_none() => {
                    let status = ViewStatus::own_only(error.into_reason()?);
                    return own(each).map(|()| Some(status));
                }
                Err(error) => return Err(error.into()),
            };
            found.records.into_iter().try_for_each(&mut *each)?;
            if found.reached.is_none() {
                return Ok(Some(status));
            }
            query.behind = found.reached;
        }
    }

    /// Activity of some keys of an organization; see [`Reader::activity`](super::Reader::activity).
    ///
    /// # Errors
    /// If the journal cannot be read, or too much of it is not indexed yet.
    pub fn activity(&self, org: OrgId, keys: &[KeyId], now: Micros, budget: u64) -> io::Result<ViewActivity> {
        let mut status = None;
        if let Some(fleet) = self.fleet.load_full() {
            let read = FleetRead::begin(&fleet, &self.journal, &self.stop, budget);
            match read.and_then(|read| activity::read(read, (org, keys), now)) {
                Ok(activity) => return Ok(activity),
                Err(error) => status = Some(ViewStatus::own_only(error.into_reason()?)),
            }
        }
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        Ok(ViewActivity { keys: reader.activity(org, keys, now)?, status })
    }

    /// Follows the audit: the first poll returns up to `last` records that are complete, each later poll
    /// those completed since.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn follow(&self, filter: Filter, last: usize) -> io::Result<ViewFollower> {
        let Some(fleet) = self.fleet.load_full() else {
            return Ok(ViewFollower::of_journal(self.journal.reader()?.follow(filter, last)?));
        };
        let mut others = OtherGateways::at_end(fleet, filter, self.journal.identity()?);
        // In this order: what has ended before the journal is followed is among its last, and returned once.
        let mut first = self.list_records(&filter, last, None, ReadBudget::of(u64::MAX))?.records;
        let oldest = first.last().filter(|_| first.len() == last).map(RecordPlace::of);
        first.retain(|record| record.outcome != Outcome::InProgress);
        let mut own = match self.journal.reader() {
            // An auditor's machine has no journal.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            reader => Some(reader?.follow(filter, last)?),
        };
        first.extend(own.iter_mut().flat_map(|own| std::mem::take(&mut own.first)));
        first.retain(|record| oldest.is_none_or(|oldest| RecordPlace::of(record) >= oldest));
        End::Oldest.sort(&mut first);
        first.dedup_by_key(|record| record.id);
        first.drain(..first.len().saturating_sub(last));
        others.skip(&first);
        Ok(ViewFollower::of_fleet(own, others, first))
    }

    /// Lists the records of this gateway.
    fn list_own(
        &self,
        filter: &Filter,
        limit: usize,
        before: Option<ViewCursor>,
        budget: ReadBudget,
        reason: Option<OwnOnlyReason>,
    ) -> io::Result<ViewPage> {
        let (cursor, below) = match before {
            None => (None, None),
            Some(ViewCursor::Journal(JournalWalk { cursor, below })) => (Some(cursor), below),
            Some(ViewCursor::Fleet(place)) => (None, Some(place)),
        };
        let below_time = below.map(|place| Micros(place.time.0.saturating_add(1)));
        let until = [filter.until, below_time].into_iter().flatten().min();
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        let page = reader.list_within(&Filter { until, ..*filter }, limit, cursor, budget.scan)?;
        let mut records = page.records;
        records.retain(|record| below.is_none_or(|below| RecordPlace::of(record) < below));
        let next = page.next.map(|cursor| ViewCursor::Journal(JournalWalk { cursor, below }));
        Ok(ViewPage { records, next, status: reason.map(ViewStatus::own_only), missing: None })
    }

    /// Lists the records of all gateways.
    fn list_fleet(
        &self,
        fleet: &Fleet,
        filter: &Filter,
        limit: usize,
        behind: Option<RecordPlace>,
        budget: ReadBudget,
    ) -> Result<ViewPage, FleetReadError> {
        let mut records: Vec<Record> = Vec::new();
        let mut query = RecordQuery { behind, ..RecordQuery::new(filter, End::Newest) };
        loop {
            // One record more than asked for tells whether there is another page.
            let missing = limit.saturating_add(1) - records.len();
            query.limit = MAX_ROWS.min(u32::try_from(missing).unwrap_or(MAX_ROWS));
            let (found, status) = self.find(fleet, query, budget.unshipped)?;
            records.extend(found.records);
            let is_full = records.len() > limit;
            // Matching records may be rare: a caller that must not wait goes on from the cursor.
            if found.reached.is_some() && !is_full && budget.scan == u64::MAX {
                query.behind = found.reached;
                continue;
            }
            records.truncate(limit);
            let last = if is_full { records.last().map(RecordPlace::of).or(behind) } else { found.reached };
            let next = last.map(ViewCursor::Fleet);
            return Ok(ViewPage { records, next, status: Some(status), missing: None });
        }
    }

    fn find(&self, fleet: &Fleet, query: RecordQuery<'_>, budget: u64) -> Result<(Found, ViewStatus), FleetReadError> {
        FleetRead::begin(fleet, &self.journal, &self.stop, budget)?.find(query)
    }
}
