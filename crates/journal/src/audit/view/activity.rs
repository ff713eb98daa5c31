//! Activity of keys at all gateways: counts by the hour, the last use and the last attempt.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::ViewActivity;
use super::cursor::RecordPlace;
use super::fleet::HourOfKey;
use super::fleet_read::{FleetRead, FleetReadError};
use crate::audit::filter::Filter;
use crate::audit::format::record::{Outcome, Record};
use crate::audit::index::usage_counts::{self, HOUR};
use crate::audit::read::activity::{ACTIVITY_HOURS, KeyActivity, LastUse};
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId};
use domain::key::KeyId;

/// Counts and last uses, while they are gathered.
struct Gathered {
    keys: HashMap<KeyId, KeyActivity>,
    /// The last admitted and the last refused use of each key.
    last: [HashMap<KeyId, Record>; 2],
    /// Ids of the records that were counted.
    counted: Vec<String>,
}

/// Reads the activity of keys, in the hour of `now` and the 23 hours before.
pub(super) fn read(
    read: FleetRead<'_>,
    (org, keys): (OrgId, &[KeyId]),
    now: Micros,
) -> Result<ViewActivity, FleetReadError> {
    let first_hour = (usage_counts::hour_of(now) + 1).saturating_sub(ACTIVITY_HOURS as u64);
    let mut gathered = Gathered::new(keys, first_hour);
    let filter = Filter { org: Some(org), ..Filter::default() };
    read.unshipped.read(&filter, &mut |record| gathered.count(record))?;
    for refused in [false, true] {
        read.snapshot.last_uses((org, keys), refused)?.into_iter().for_each(|record| gathered.note_last(record));
    }
    let since = Micros(first_hour.saturating_mul(HOUR));
    let counted = std::mem::take(&mut gathered.counted);
    for hour in read.snapshot.hours((org, keys), since, counted)? {
        let HourOfKey { key, hour, requests, refusals } = hour;
        gathered.add(key, hour, [requests, refusals]);
    }
    Ok(ViewActivity { keys: gathered.finish(), status: Some(read.finish()) })
}

impl Gathered {
    fn new(keys: &[KeyId], first_hour: u64) -> Self {
        let keys = keys.iter().map(|key| (*key, KeyActivity::empty(first_hour))).collect();
        Self { keys, last: Default::default(), counted: Vec::new() }
    }

    /// Counts a record of the journal, when it is a use of one of the keys; it is not counted in the database then.
    fn count(&mut self, record: Record) {
        let key = record.key_id.filter(|key| self.keys.contains_key(key) && record.auth_method == AuthMethod::ApiKey);
        let Some(key) = key else { return };
        let uses = record.uses();
        let counts = if record.outcome.is_refusal() { [0, uses] } else { [uses, 0] };
        self.add(key, usage_counts::hour_of(record.time), counts);
        self.counted.push(record.id.to_string());
        self.note_last(record);
    }

    fn add(&mut self, key: KeyId, hour: u64, counts: [u64; 2]) {
        if let Some(activity) = self.keys.get_mut(&key) {
            activity.add(hour, counts);
        }
    }

    /// Notes the record when it is the last of its key and kind. Of the same record twice, the one
    /// that has ended stays.
    fn note_last(&mut self, record: Record) {
        let Some(key) = record.key_id else { return };
        match self.last[usize::from(record.outcome.is_refusal())].entry(key) {
            Entry::Vacant(vacant) => drop(vacant.insert(record)),
            Entry::Occupied(mut last) => {
                let known = RecordPlace::of(last.get());
                let new = RecordPlace::of(&record);
                if new > known || new == known && last.get().outcome == Outcome::InProgress {
                    last.insert(record);
                }
            }
        }
    }

    fn finish(self) -> HashMap<KeyId, KeyActivity> {
        let Self { mut keys, last: [admitted, refused], .. } = self;
        for (key, activity) in &mut keys {
            activity.set_last(admitted.get(key).map(LastUse::from_record), refused.get(key).map(LastUse::from_record));
        }
        keys
    }
}
