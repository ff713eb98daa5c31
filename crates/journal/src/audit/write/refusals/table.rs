//! Table of the refusals of the present second. Decides which refusal is a record of its own, and which is counted.
//!
//! The second is the one in which a request is refused, not the one in which it arrived: the requests of one second may
//! be refused in several, when Redis is slow or a thread is suspended. The table has no clock: its callers read it.

use rustc_hash::FxHashMap;

use super::group::RefusalGroup;
use crate::audit::format::record::{Outcome, Use};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;

/// Microseconds of a window: windows are the seconds of the clock.
pub(crate) const WINDOW: u64 = 1_000_000;

/// Microseconds of a day: usage is metered by days and months.
const DAY: u64 = 86_400_000_000;

/// Refusals that are counted together: those of one key, or of one user's sessions, with one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusalKey {
    key: Option<KeyId>,
    user: Option<UserId>,
    org: Option<OrgId>,
    outcome: Outcome,
    /// Day of the arrival: a record is metered on the day of its first request, so its others must be of that day.
    day: u64,
}

/// Refusals of one key with one outcome within one window.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Number of the window since the epoch.
    window: u64,
    /// Refusals that became records of their own.
    singles: u32,
    /// The refusals after them; boxed, because most entries have none.
    pub(crate) group: Option<Box<RefusalGroup>>,
}

/// Table of a part of all keys, of bounded size.
#[derive(Debug)]
pub(crate) struct RefusalTable {
    capacity: usize,
    entries: FxHashMap<RefusalKey, Entry>,
    /// Groups whose windows have ended.
    ended: Vec<Box<RefusalGroup>>,
}

impl RefusalKey {
    pub(crate) fn new(opening: &Use<'_>, outcome: Outcome) -> Self {
        let day = opening.time.0 / DAY;
        Self { key: opening.key_id, user: opening.user_id, org: opening.org_id, outcome, day }
    }
}

impl Entry {
    /// Counts a refusal as a record of its own, unless the window has had `limit` of them. Returns whether it is one.
    pub(crate) fn take_single(&mut self, limit: u32) -> bool {
        let is_single = self.group.is_none() && self.singles < limit;
        self.singles += u32::from(is_single);
        is_single
    }
}

impl RefusalTable {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, entries: FxHashMap::default(), ended: Vec::new() }
    }

    /// The entry of a key in the present window. The group of an earlier window of the key ends.
    pub(crate) fn entry(&mut self, key: RefusalKey, window: u64) -> &mut Entry {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.make_room(window);
        }
        let entry = self.entries.entry(key).or_insert(Entry { window, singles: 0, group: None });
        if entry.window < window {
            self.ended.extend(entry.group.take().map(RefusalGroup::complete));
            *entry = Entry { window, singles: 0, group: None };
        }
        entry
    }

    /// Removes the entries of earlier windows, or else the oldest entry.
    fn make_room(&mut self, window: u64) {
        self.end_windows(|other| other != window);
        if self.entries.len() < self.capacity {
            return;
        }
        let age = |entry: &Entry| entry.group.as_ref().map(|group| group.first());
        let oldest = self.entries.iter().min_by_key(|(_, entry)| age(entry)).map(|(key, _)| *key);
        if let Some(entry) = oldest.and_then(|oldest| self.entries.remove(&oldest)) {
            self.ended.extend(entry.group.map(RefusalGroup::complete));
        }
    }

    /// Takes the groups that have ended: those of all windows but `present`.
    pub(crate) fn take_ended(&mut self, present: Option<u64>) -> Vec<Box<RefusalGroup>> {
        self.end_windows(|window| Some(window) != present);
        std::mem::take(&mut self.ended)
    }

    /// Puts groups back that could not be written.
    pub(crate) fn restore(&mut self, groups: impl IntoIterator<Item = Box<RefusalGroup>>) {
        self.ended.extend(groups);
    }

    /// True while there is a group that is to be written.
    pub(crate) fn has_groups(&self) -> bool {
        !self.ended.is_empty() || self.entries.values().any(|entry| entry.group.is_some())
    }

    fn end_windows(&mut self, has_ended: impl Fn(u64) -> bool) {
        let Self { entries, ended, .. } = self;
        entries.retain(|_, entry| {
            let keep = !has_ended(entry.window);
            if !keep {
                ended.extend(entry.group.take().map(RefusalGroup::complete));
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::refusal;
    use super::*;
    use domain::clock::Micros;

    fn count(table: &mut RefusalTable, window: u64, user: u128) -> bool {
        count_of(table, window, window * WINDOW, user)
    }

    /// Counts a refusal in a window of a request that arrived at a time.
    fn count_of(table: &mut RefusalTable, window: u64, arrival: u64, user: u128) -> bool {
        let (opening, end) = refusal(arrival);
        let user = Some(format!("usr_{user:032x}").parse().unwrap());
        let opening = Use { user_id: user, ..opening };
        let entry = table.entry(RefusalKey::new(&opening, end.outcome), window);
        let is_single = entry.take_single(3);
        if !is_single {
            match &mut entry.group {
                Some(group) => group.add(&opening),
                none => *none = Some(Box::new(RefusalGroup::new(&opening, end, 0))),
            }
        }
        is_single
    }

    fn counts(groups: &[Box<RefusalGroup>]) -> Vec<u64> {
        groups.iter().map(|group| group.event.uses()).collect()
    }

    #[test]
    fn refusals_beyond_the_limit_are_counted_by_window() {
        let mut table = RefusalTable::new(10);
        let singles = (0..8).filter(|_| count(&mut table, 100, 1)).count();
        assert_eq!((singles, counts(&table.take_ended(Some(100)))), (3, vec![]));
        assert!(count(&mut table, 101, 1), "a new window has records of its own again");
        assert_eq!(counts(&table.take_ended(Some(101))), [5]);
        assert_eq!((0..4).filter(|_| count(&mut table, 101, 1)).count(), 2);
        assert!(table.has_groups());
        // A thread that was suspended after it read the clock begins no window anew.
        assert!(!count(&mut table, 100, 1));
        assert_eq!(counts(&table.take_ended(None)), [3]);
        assert!(!table.has_groups());
    }

    #[test]
    fn refusals_of_requests_that_arrived_earlier_are_counted_in_the_present_window() {
        let mut table = RefusalTable::new(10);
        let singles = (0..9).filter(|n| count_of(&mut table, 100, (100 - n % 3) * WINDOW, 1)).count();
        assert_eq!((singles, counts(&table.take_ended(Some(100)))), (3, vec![]));
        let ended = table.take_ended(Some(101));
        assert_eq!(counts(&ended), [6]);
        assert_eq!((ended[0].first().0, ended[0].event.last), (98 * WINDOW, Some(Micros(100 * WINDOW))));
    }

    #[test]
    fn refusals_of_requests_of_two_days_are_in_groups_of_their_own() {
        let mut table = RefusalTable::new(10);
        let window = DAY / WINDOW;
        // In turn: a request of the day before ends no group of the present day.
        let singles = (0..20).filter(|n| count_of(&mut table, window, DAY - n % 2, 1)).count();
        assert_eq!((singles, counts(&table.take_ended(Some(window)))), (6, vec![]));
        assert_eq!(counts(&table.take_ended(None)), [7, 7]);
    }

    #[test]
    fn full_table_ends_its_oldest_entries() {
        let mut table = RefusalTable::new(2);
        assert_eq!((0..5).filter(|_| count(&mut table, 100, 1)).count(), 3);
        assert!(count(&mut table, 101, 2) && count(&mut table, 101, 3));
        assert_eq!(counts(&table.take_ended(Some(101))), [2], "the earlier window made room");
        assert_eq!((0..9).filter(|_| count(&mut table, 101, 2)).count(), 2);
        assert!(count(&mut table, 101, 4), "the entry without a group made room");
        assert_eq!((0..9).filter(|_| count(&mut table, 101, 4)).count(), 2);
        assert!(count(&mut table, 101, 5));
        assert_eq!(table.entries.len(), 2);
        assert_eq!(counts(&table.take_ended(Some(101))).len(), 1, "one of the groups made room");
    }
}
