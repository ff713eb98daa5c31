//! Following of the audit while it grows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::cursor::RecordPlace;
use super::fleet::{End, Fleet, FleetError, JournalRow, RecordQuery};
use super::fleet_read;
use super::status::{OwnOnlyReason, ViewStatus};
use crate::audit::filter::Filter;
use crate::audit::format::record::{Outcome, Record};
use crate::audit::read::follower::Follower;
use domain::clock::Micros;

/// Time between two looks at PostgreSQL: gateways ship about twice a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time for which a gateway may be silent, and still be waited for: it renews its position every few seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Time before the position of a journal in which there may be uses that had just begun, and were not shipped.
const YOUNG: Duration = Duration::from_secs(2);
/// Uses in progress that are watched at most.
const MAX_OPEN: u32 = 200_000;

/// Follower of a growing audit: of this gateway's journal, and of the records that the other gateways ship.
#[derive(Debug)]
pub struct ViewFollower {
    /// The journal; `None` where there is none.
    own: Option<Follower>,
    others: Option<OtherGateways>,
    /// Records for the first poll.
    first: Vec<Record>,
}

/// The records of the other gateways that have ended, as they come into PostgreSQL. A look that fails is made up for by
/// the next.
#[derive(Debug)]
pub(super) struct OtherGateways {
    fleet: Arc<Fleet>,
    filter: Filter,
    /// The journal of this gateway, whose records are read from there.
    own: Option<Uuid>,
    /// Time from which records of each may be new; `None` before the first look.
    new_from: Option<HashMap<String, Micros>>,
    /// Records that are not new, as far as they may be looked at again.
    seen: BTreeSet<RecordPlace>,
    /// Records in progress at the last look.
    open: HashSet<Uuid>,
    last_look: Option<Instant>,
    status: ViewStatus,
}

impl ViewFollower {
    /// Follows this gateway's journal.
    pub(super) fn of_journal(own: Follower) -> Self {
        Self { own: Some(own), others: None, first: Vec::new() }
    }

    /// Follows the records of all gateways. The first poll returns the records `first` as well.
    pub(super) fn of_fleet(own: Option<Follower>, others: OtherGateways, first: Vec<Record>) -> Self {
        Self { own, others: Some(others), first }
    }

    /// Returns the records completed since the last poll: those of this gateway in the order of their completion, then
    /// those that the others have shipped since.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<Record>> {
        let mut records = std::mem::take(&mut self.first);
        if let Some(own) = &mut self.own {
            records.append(&mut own.poll()?);
        }
        if let Some(others) = &mut self.others {
            others.poll(&mut records);
        }
        Ok(records)
    }

    /// Scope and freshness of the last poll; `None` when only this gateway's journal is read.
    pub fn status(&self) -> Option<&ViewStatus> {
        self.others.as_ref().map(|others| &others.status)
    }
}

impl OtherGateways {
    /// Begins at the present end, or where PostgreSQL can be read first.
    pub(super) fn at_end(fleet: Arc<Fleet>, filter: Filter, own: Option<Uuid>) -> Self {
        let mut others = Self {
            fleet,
            filter,
            own,
            new_from: None,
            seen: BTreeSet::new(),
            open: HashSet::new(),
            last_look: None,
            status: ViewStatus::own_only(OwnOnlyReason::Unavailable),
        };
        others.poll(&mut Vec::new());
        others
    }

    /// Does not return these records, which have ended.
    pub(super) fn skip(&mut self, records: &[Record]) {
        self.seen.extend(records.iter().map(RecordPlace::of));
    }

    /// Adds the records that have come. While PostgreSQL cannot be read, none.
    fn poll(&mut self, to: &mut Vec<Record>) {
        if self.last_look.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return;
        }
        self.last_look = Some(Instant::now());
        match self.look() {
            Ok(records) => to.extend(records.into_iter().filter(|record| self.filter.matches_outcome(record))),
            Err(_) => self.status = ViewStatus::own_only(OwnOnlyReason::Unavailable),
        }
    }

    /// Reads what has come. Nothing is noted when that fails, so that it is read again.
    fn look(&mut self) -> Result<Vec<Record>, FleetError> {
        let fleet = Arc::clone(&self.fleet);
        let snapshot = fleet.snapshot()?;
        let journals = snapshot.journals()?;
        let next = next_new_from(&journals, self.own);
        let new_from = self.new_from.as_ref().unwrap_or(&next);
        let any_outcome = Filter { outcome: None, ..self.filter };
        let filter = Filter { since: self.filter.since.max(new_from.values().min().copied()), ..any_outcome };
        let mut query = RecordQuery::new(&filter, End::Oldest);
        let mut found = Vec::new();
        while !new_from.is_empty() {
            let (records, reached) = snapshot.records(&query)?;
            let is_new = |record: &Record| new_from.get(&record.gateway).is_some_and(|from| record.time >= *from);
            found.extend(records.into_iter().filter(is_new));
            if reached.is_none() {
                break;
            }
            query.behind = reached;
        }
        let open = snapshot.open_ids(&any_outcome, MAX_OPEN)?;
        let gone: Vec<String> = self.open.difference(&open).map(ToString::to_string).collect();
        found.extend(if gone.is_empty() { Vec::new() } else { snapshot.ended(gone)? });
        snapshot.finish();
        found.retain(|record| {
            let has_ended = next.contains_key(&record.gateway) && record.outcome != Outcome::InProgress;
            has_ended && self.seen.insert(RecordPlace::of(record))
        });
        End::Oldest.sort(&mut found);
        if let Some(earliest) = next.values().min() {
            self.seen = self.seen.split_off(&RecordPlace { time: *earliest, id: Uuid::nil() });
        }
        self.open = open;
        self.status = ViewStatus::fleet(fleet_read::freshness(journals));
        let is_first = self.new_from.replace(next).is_none();
        Ok(if is_first { Vec::new() } else { found })
    }
}

/// The time from which records of each other gateway may be new at the next look. One that is silent is not waited for:
/// when it comes back, its time is that of before.
fn next_new_from(journals: &[JournalRow], own: Option<Uuid>) -> HashMap<String, Micros> {
    let latest = journals.iter().map(|row| row.updated).max().unwrap_or_default();
    let own = journals.iter().find(|row| Some(row.journal) == own).map(|row| &row.gateway);
    let mut times: HashMap<String, Micros> = HashMap::new();
    for row in journals.iter().filter(|row| Some(&row.gateway) != own && row.updated.after(SILENCE) >= latest) {
        let time = row.complete_until.before(YOUNG);
        times.entry(row.gateway.clone()).and_modify(|earliest| *earliest = time.min(*earliest)).or_insert(time);
    }
    times
}
