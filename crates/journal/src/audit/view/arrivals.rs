//! Records of the other gateways, as they arrive in the database.
//!
//! - Each look reads the records that began after the time up to which their gateway was complete at the look before,
//!   without those that were seen; and those that were in progress then and are no more.
//! - A look that fails is made up for by the next.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::fleet::{Fleet, FleetError, JournalRow, RecordQuery, Snapshot};
use super::joined;
use super::order::{End, RecordPlace};
use super::status::{OwnOnlyReason, ViewStatus};
use crate::audit::filter::Filter;
use crate::audit::format::record::{Outcome, Record};
use domain::clock::Micros;

/// Time between two looks: gateways ship about twice a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time for which a gateway may be silent, and still be waited for: it renews its position every few seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Time before the position of a journal in which there may be uses that had just begun, and were not shipped.
const YOUNG: Duration = Duration::from_secs(2);
/// Uses in progress that are watched at most.
const MAX_OPEN: u32 = 200_000;

/// Follower of the records of the other gateways.
#[derive(Debug)]
pub(super) struct Arrivals {
    fleet: Arc<Fleet>,
    filter: Filter,
    /// The journal of this gateway, whose records are read from there.
    own: Option<Uuid>,
    /// Time from which records of each other gateway may be new; `None` before the first look.
    new_from: Option<HashMap<String, Micros>>,
    /// Records that were returned, or were there at the first look, as far as they may be looked at again.
    seen: BTreeSet<RecordPlace>,
    /// Records in progress at the last look.
    open: HashSet<Uuid>,
    last_look: Option<Instant>,
    status: ViewStatus,
}

impl Arrivals {
    /// Begins at the present end, or where the database can be read first.
    pub(super) fn at_end(fleet: Arc<Fleet>, filter: Filter, own: Option<Uuid>) -> Self {
        let mut arrivals = Self {
            fleet,
            filter,
            own,
            new_from: None,
            seen: BTreeSet::new(),
            open: HashSet::new(),
            last_look: None,
            status: ViewStatus::own_only(OwnOnlyReason::Unavailable),
        };
        arrivals.poll(&mut Vec::new());
        arrivals
    }

    pub(super) fn status(&self) -> &ViewStatus {
        &self.status
    }

    /// Does not return these records.
    pub(super) fn skip(&mut self, records: &[Record]) {
        let ended = records.iter().filter(|record| record.outcome != Outcome::InProgress);
        self.seen.extend(ended.map(RecordPlace::of));
    }

    /// Adds the records that have arrived. While the database cannot be read, none.
    pub(super) fn poll(&mut self, to: &mut Vec<Record>) {
        if self.last_look.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return;
        }
        self.last_look = Some(Instant::now());
        match self.look() {
            Ok(records) => to.extend(records.into_iter().filter(|record| self.filter.matches_outcome(record))),
            Err(_) => self.status = ViewStatus::own_only(OwnOnlyReason::Unavailable),
        }
    }

    /// Reads what has arrived. Nothing is noted when that fails, so that it is read again.
    fn look(&mut self) -> Result<Vec<Record>, FleetError> {
        let fleet = Arc::clone(&self.fleet);
        let snapshot = fleet.snapshot()?;
        let journals = snapshot.journals()?;
        let next = self.next_new_from(&journals);
        let new_from = self.new_from.as_ref().unwrap_or(&next);
        let began = self.read_began(&snapshot, new_from)?;
        let open = snapshot.open_ids(&Filter { outcome: None, ..self.filter }, MAX_OPEN)?;
        let gone: Vec<String> = self.open.difference(&open).map(ToString::to_string).collect();
        let ended = if gone.is_empty() { Vec::new() } else { snapshot.ended(gone)? };
        snapshot.finish();
        let mut found: Vec<Record> = began.into_iter().chain(ended).collect();
        found.retain(|record| next.contains_key(&record.gateway) && !self.seen.contains(&RecordPlace::of(record)));
        found.sort_by_key(RecordPlace::of);
        found.dedup_by_key(|record| record.id);
        let is_first = self.new_from.is_none();
        self.seen.extend(found.iter().map(RecordPlace::of));
        if let Some(earliest) = next.values().min() {
            self.seen = self.seen.split_off(&RecordPlace { time: *earliest, id: Uuid::nil() });
        }
        self.open = open;
        self.new_from = Some(next);
        self.status = ViewStatus::fleet(joined::freshness(journals));
        Ok(if is_first { Vec::new() } else { found })
    }

    /// The records that have ended, of those that began at a time from which they may be new.
    fn read_began(
        &self,
        snapshot: &Snapshot<'_>,
        new_from: &HashMap<String, Micros>,
    ) -> Result<Vec<Record>, FleetError> {
        let Some(earliest) = new_from.values().min() else { return Ok(Vec::new()) };
        let filter = Filter { since: self.filter.since.max(Some(*earliest)), outcome: None, ..self.filter };
        let mut query = RecordQuery::new(&filter, End::Oldest);
        let mut began = Vec::new();
        loop {
            let (records, _) = snapshot.records(&query)?;
            let Some(last) = records.last().map(RecordPlace::of) else { return Ok(began) };
            query.behind = Some(last);
            began.extend(records.into_iter().filter(|record| {
                let is_new = new_from.get(&record.gateway).is_some_and(|from| record.time >= *from);
                is_new && record.outcome != Outcome::InProgress
            }));
        }
    }

    /// The time from which records of each other gateway may be new at the next look. A gateway that is silent is not
    /// waited for: when it comes back, its time is that of before.
    fn next_new_from(&self, journals: &[JournalRow]) -> HashMap<String, Micros> {
        let latest = journals.iter().map(|row| row.updated).max().unwrap_or_default();
        let is_own = |row: &&JournalRow| Some(row.journal) == self.own;
        let own: HashSet<&str> = journals.iter().filter(is_own).map(|row| row.gateway.as_str()).collect();
        let others = journals.iter().filter(|row| !own.contains(row.gateway.as_str()));
        let live = others.filter(|row| row.updated.after(SILENCE) >= latest);
        let mut times: HashMap<String, Micros> = HashMap::new();
        for row in live {
            let time = row.complete_until.before(YOUNG);
            times.entry(row.gateway.clone()).and_modify(|earliest| *earliest = time.min(*earliest)).or_insert(time);
        }
        times
    }
}
