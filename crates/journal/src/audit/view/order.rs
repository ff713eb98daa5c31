//! Order of records over all gateways: by time, then by id.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::audit::format::record::{Outcome, Record};
use domain::clock::Micros;

/// Place of a record in the order over all gateways. Text form `TIME.ID`, in microseconds and hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Time of the record.
    pub time: Micros,
    /// Its id.
    pub id: Uuid,
}

/// The text is not a place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a place of the form TIME.ID")]
pub struct InvalidPlace;

impl RecordPlace {
    /// The place of a record.
    pub(super) fn of(record: &Record) -> Self {
        Self { time: record.time, id: record.id }
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time.0, self.id.simple())
    }
}

impl FromStr for RecordPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let (time, id) = text.split_once('.').filter(|(_, id)| id.len() == 32).ok_or(InvalidPlace)?;
        let time = time.parse().map_err(|_| InvalidPlace)?;
        Ok(Self { time: Micros(time), id: Uuid::try_parse(id).map_err(|_| InvalidPlace)? })
    }
}

/// End of the order from which records are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Newest,
    Oldest,
}

/// The first records from one end of the order, at most as many as the limit. Each id counts once.
#[derive(Debug)]
pub(super) struct FirstRecords {
    from: End,
    /// Only records behind this one, seen from the end.
    behind: Option<RecordPlace>,
    limit: usize,
    /// By their distance from the end.
    records: BTreeMap<Distance, Record>,
}

/// Sort key: the record next to the end comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    FromNewest(Reverse<RecordPlace>),
    FromOldest(RecordPlace),
}

impl End {
    /// The distance of a place from this end: what is nearer comes first.
    pub(super) fn distance(self, place: RecordPlace) -> Distance {
        match self {
            Self::Newest => Distance::FromNewest(Reverse(place)),
            Self::Oldest => Distance::FromOldest(place),
        }
    }
}

impl FirstRecords {
    pub(super) fn new(from: End, behind: Option<RecordPlace>, limit: usize) -> Self {
        Self { from, behind, limit, records: BTreeMap::new() }
    }

    /// Adds a record. Of two with the same id, the one that has ended stays.
    pub(super) fn add(&mut self, record: Record) {
        let distance = self.from.distance(RecordPlace::of(&record));
        if self.behind.is_some_and(|behind| distance <= self.from.distance(behind)) {
            return;
        }
        let is_full = self.records.len() >= self.limit;
        if is_full && self.records.last_key_value().is_none_or(|(last, _)| *last < distance) {
            return;
        }
        match self.records.entry(distance) {
            Entry::Occupied(mut known) => {
                if known.get().outcome == Outcome::InProgress {
                    known.insert(record);
                }
                return;
            }
            Entry::Vacant(vacant) => vacant.insert(record),
        };
        if is_full {
            self.records.pop_last();
        }
    }

    /// The records, in their order from the end.
    pub(super) fn into_records(self) -> Vec<Record> {
        self.records.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn record_that_has_ended_replaces_itself() {
        for outcomes in [["in_progress", "completed"], ["completed", "in_progress"]] {
            let mut first = FirstRecords::new(End::Newest, None, 1);
            outcomes.iter().for_each(|outcome| first.add(record(7, 1, outcome)));
            assert_eq!(first.into_records(), [record(7, 1, "completed")]);
        }
    }

    proptest! {
        #[test]
        fn first_records_are_those_of_the_sorted_list(
            ids in prop::collection::vec((0_u64..20, 0_u128..40), 0..60),
            behind in prop::option::of((0_u64..20, 0_u128..40)),
            limit in 1_usize..10,
            newest: bool,
        ) {
            // Each id has one time.
            let places: Vec<(u64, u128)> = ids.iter().map(|(time, id)| (time % (*id as u64 + 1), *id)).collect();
            let mut sorted: Vec<RecordPlace> =
                places.iter().map(|(time, id)| RecordPlace { time: Micros(*time), id: Uuid::from_u128(*id) }).collect();
            sorted.sort_unstable();
            sorted.dedup();
            let behind = behind.map(|(time, id)| RecordPlace { time: Micros(time), id: Uuid::from_u128(id) });
            let from = if newest { sorted.reverse(); End::Newest } else { End::Oldest };
            sorted.retain(|place| behind.is_none_or(|behind| if newest { *place < behind } else { *place > behind }));
            sorted.truncate(limit);
            let mut first = FirstRecords::new(from, behind, limit);
            places.iter().for_each(|(time, id)| first.add(record(*time, *id, "completed")));
            let found: Vec<RecordPlace> = first.into_records().iter().map(RecordPlace::of).collect();
            prop_assert_eq!(found, sorted);
        }
    }
}
