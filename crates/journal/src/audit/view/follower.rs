//! Following of the audit while it grows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::cursor::RecordPlace;
use super::fleet::{End, Fleet, FleetError, JournalRow, MAX_APPEND_DELAY, RecordQuery};
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
/// Records that come later than this are not shown: all that began since would be looked through for them.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);
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
    /// The others, by name.
    gateways: HashMap<String, Seen>,
    /// Time of the first look, by PostgreSQL.
    begun: Option<Micros>,
    /// Records in progress at the last look.
    open: HashSet<Uuid>,
    last_look: Option<Instant>,
    status: ViewStatus,
}

/// The records of a gateway that are not new.
#[derive(Debug)]
struct Seen {
    /// Time from which records may be new.
    from: Micros,
    /// Those from that time on that were returned, or that were there at the beginning.
    records: BTreeSet<RecordPlace>,
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
            gateways: HashMap::new(),
            begun: None,
            open: HashSet::new(),
            last_look: None,
            status: ViewStatus::own_only(OwnOnlyReason::Unavailable),
        };
        others.poll(&mut Vec::new());
        others
    }

    /// Does not return these records, which have ended.
    pub(super) fn skip(&mut self, records: &[Record]) {
        for record in records {
            if let Some(seen) = self.gateways.get_mut(&record.gateway) {
                seen.records.insert(RecordPlace::of(record));
            }
        }
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

    /// Reads what has come. What is not read because of a failure is read at the next look.
    fn look(&mut self) -> Result<Vec<Record>, FleetError> {
        let fleet = Arc::clone(&self.fleet);
        let snapshot = fleet.snapshot()?;
        let journals = snapshot.journals()?;
        let latest = journals.iter().map(|row| row.updated).max().unwrap_or_default();
        let next = self.note_gateways(&journals, latest);
        let earliest = next.keys().map(|gateway| self.gateways[gateway].from).min();
        let any_outcome = Filter { outcome: None, ..self.filter };
        let since = earliest.map(|earliest| earliest.max(latest.before(LONGEST_DELAY)));
        let filter = Filter { since: self.filter.since.max(since), ..any_outcome };
        let mut query = RecordQuery::new(&filter, End::Oldest);
        let mut found = Vec::new();
        while earliest.is_some() {
            let (records, reached) = snapshot.records(&query)?;
            found.extend(records.into_iter().filter(|record| {
                next.contains_key(&record.gateway) && self.gateways[&record.gateway].from <= record.time
            }));
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
            let seen = self.gateways.get_mut(&record.gateway).filter(|_| record.outcome != Outcome::InProgress);
            seen.is_some_and(|seen| seen.records.insert(RecordPlace::of(record)))
        });
        End::Oldest.sort(&mut found);
        for (gateway, from) in next {
            let Some(seen) = self.gateways.get_mut(&gateway) else { continue };
            seen.from = from;
            seen.records = seen.records.split_off(&RecordPlace { time: from, id: Uuid::nil() });
        }
        self.open = open;
        self.status = ViewStatus::fleet(fleet_read::freshness(journals));
        let is_first = self.begun.is_none();
        self.begun.get_or_insert(latest);
        Ok(if is_first { Vec::new() } else { found })
    }

    /// Notes the other gateways, and returns the time from which records of each may be new at the next look. One that
    /// is silent is not waited for: when it comes back, its time is that of before. Of one that has come since the
    /// beginning, all is new.
    fn note_gateways(&mut self, journals: &[JournalRow], latest: Micros) -> HashMap<String, Micros> {
        let is_own = |row: &&JournalRow| Some(row.journal) == self.own;
        // It may have had other names before.
        let own: HashSet<&str> = journals.iter().filter(is_own).map(|row| &*row.gateway).collect();
        let others = || journals.iter().filter(|row| !own.contains(&*row.gateway));
        let mut next: HashMap<String, Micros> = HashMap::new();
        for row in others().filter(|row| row.updated.after(SILENCE) >= latest) {
            let time = row.whole_until();
            next.entry(row.gateway.clone()).and_modify(|first| *first = time.min(*first)).or_insert(time);
        }
        for row in others() {
            let known = next.get(&row.gateway).copied().unwrap_or(row.complete_until);
            let from = self.begun.map_or(known, |begun| begun.before(MAX_APPEND_DELAY));
            let seen = self.gateways.entry(row.gateway.clone()).or_insert(Seen { from, records: BTreeSet::new() });
            if self.begun.is_none() {
                seen.from = seen.from.max(from);
            }
        }
        next
    }
}
