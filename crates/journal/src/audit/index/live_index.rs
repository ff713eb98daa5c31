//! The index of the open segment, in memory.
//!
//! The thread that writes a batch adds its events, while it holds the segment: no line is read again to be indexed, and
//! the counts are those of the file at every moment. A closed segment stays here until its index is in the database.

use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::{IndexedEvent, KeyOwner};
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_counts::{RouteHour, UsageCounts};
use super::usage_sums::UsageSums;
use crate::audit::filter::Filter;
use crate::audit::format::segment::{Block, Point};
use domain::identity::OrgId;
use domain::key::KeyId;

/// Keys that are looked through at once, while the threads that write wait: some tens of microseconds.
const KEYS_AT_ONCE: usize = 1024;

/// The index of the open segment, and of closed ones whose index is not in the database yet. Shared by the threads that
/// write and by readers of this process.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    segments: Mutex<LiveSegments>,
}

#[derive(Debug)]
struct LiveSegments {
    active: SegmentIndex,
    /// Oldest first.
    closed: Vec<Arc<SegmentIndex>>,
}

/// An event and where its line begins in its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedEvent {
    pub(crate) event: IndexedEvent,
    pub(crate) at: usize,
}

/// A stretch of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) segment: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Stretch {
    /// True when its sums come after what is stored up to this point.
    pub(crate) fn follows(&self, covered: Point) -> bool {
        self.segment > covered.segment || (self.segment == covered.segment && self.from >= covered.offset)
    }
}

impl LiveIndex {
    /// Continues with the index of the last segment.
    pub(crate) fn new(active: SegmentIndex) -> Self {
        Self { segments: Mutex::new(LiveSegments { active, closed: Vec::new() }) }
    }

    /// Adds the events of a batch that was written at this point, and that has this length.
    pub(crate) fn add_batch(&self, at: Point, length: u64, events: &[PlacedEvent]) {
        let mut segments = self.lock();
        if segments.active.segment != at.segment {
            segments.begin_segment(at.segment);
        }
        let active = &mut segments.active;
        events.iter().for_each(|placed| active.add(&placed.event, at.offset + placed.at as u64));
        active.length = at.offset + length;
    }

    /// The index of a closed segment, if it is here.
    pub(crate) fn closed(&self, segment: u64) -> Option<Arc<SegmentIndex>> {
        self.lock().closed.iter().find(|closed| closed.segment == segment).cloned()
    }

    /// Takes the indexes of all segments that are here, oldest first, once nothing is written any more.
    pub(crate) fn take_all(&self) -> Vec<Arc<SegmentIndex>> {
        let mut segments = self.lock();
        let empty = SegmentIndex::new(0, segments.active.members.part, FxHashMap::default());
        let active = mem::replace(&mut segments.active, empty);
        let mut all = mem::take(&mut segments.closed);
        all.extend((active.segment > 0).then(|| Arc::new(active)));
        all
    }

    /// Forgets closed segments up to this one: their index is in the database.
    pub(crate) fn forget_to(&self, segment: u64) {
        let mut segments = self.lock();
        let (kept, forgotten) =
            mem::take(&mut segments.closed).into_iter().partition(|closed| closed.segment > segment);
        segments.closed = kept;
        drop(segments);
        // Each key is freed here, and the threads that write do not wait for it.
        drop::<Vec<_>>(forgotten);
    }

    /// The usage of these keys in each segment that is here, oldest first.
    pub(crate) fn usage(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> Vec<(Stretch, UsageCounts)> {
        let of = |index: &SegmentIndex| (index.counted(), index.usage.select(org, keys));
        self.lock().iter().map(of).collect()
    }

    /// The stretches whose usage is here, oldest first.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        self.lock().iter().map(SegmentIndex::counted).collect()
    }

    /// Calls `each` with the sums of the routes of one organization or all, by stretch and hour.
    pub(crate) fn for_each_route(&self, org: Option<OrgId>, mut each: impl FnMut(Stretch, RouteHour, &UsageSums)) {
        for index in self.lock().iter() {
            let of_org = index.usage.routes().iter().filter(|((of, ..), _)| org.is_none_or(|org| *of == org));
            of_org.for_each(|(route, sums)| each(index.counted(), *route, sums));
        }
    }

    /// Calls `each` with the sums of the keys of one organization or all, by stretch and hour. The threads that write
    /// wait for some keys at a time, not for all; of a segment that is stored meanwhile, some keys may be missing.
    pub(crate) fn for_each_key(&self, org: Option<OrgId>, mut each: impl FnMut(Stretch, KeyOwner, u64, &UsageSums)) {
        for stretch in self.stretches() {
            let mut from = Some(0);
            while let Some(place) = from {
                let segments = self.lock();
                let index = segments.iter().find(|index| index.segment == stretch.segment);
                from = index.and_then(|index| {
                    index
                        .usage
                        .for_each_key(org, (place, KEYS_AT_ONCE), |owner, hour, sums| each(stretch, owner, hour, sums))
                });
            }
        }
    }

    /// The blocks of each segment that is here that may hold records for a filter, with the length that is indexed.
    pub(crate) fn candidates(&self, filter: &Filter) -> FxHashMap<u64, (Vec<Block>, u64)> {
        let of = |index: &SegmentIndex| {
            let set = |hash: u32| Ok::<_, Infallible>(index.members.sets.get(&hash).copied().unwrap_or(0));
            let place = (index.segment, index.length, index.members.part);
            let Ok(blocks) = members::candidates(place, filter, &index.members.times, set);
            (index.segment, (blocks, index.length))
        };
        self.lock().iter().map(of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LiveSegments> {
        self.segments.lock()
    }
}

impl SegmentIndex {
    /// The stretch whose usage is counted.
    fn counted(&self) -> Stretch {
        Stretch { segment: self.segment, from: self.counted_from, to: self.length }
    }
}

impl LiveSegments {
    fn begin_segment(&mut self, number: u64) {
        let next = SegmentIndex::new(number, self.active.members.part, self.active.usage.open_uses());
        let before = mem::replace(&mut self.active, next);
        // Number 0 is the index of a journal without segments.
        if before.segment > 0 {
            self.closed.push(Arc::new(before));
        }
    }

    fn iter(&self) -> impl Iterator<Item = &SegmentIndex> {
        self.closed.iter().map(|closed| &**closed).chain([&self.active]).filter(|index| index.segment > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::audit::format::event::OpenUse;
    use crate::audit::format::record::Outcome;
    use crate::audit::format::route_name::RouteName;
    use crate::audit::index::indexed_use::{IndexedEnd, IndexedUse, KeyOwner};
    use crate::audit::index::segment_usage::SegmentUsage;
    use crate::audit::index::usage_counts::{HOUR, KeyUsage, LateOutcome, RouteHour};
    use crate::audit::index::{database, usage_rows};
    use domain::clock::Micros;
    use domain::refusal::Refusal;

    /// Keys of each of two organizations.
    const KEYS: u8 = 100;

    /// A step of a history. Keys are meant modulo their number, uses modulo that of all before.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Use {
            key: u8,
            hour: u64,
            outcome: Option<Outcome>,
        },
        /// The end of a use, that may have ended before.
        End {
            used: usize,
        },
        CloseSegment,
        /// The maintenance thread stores the index of the oldest closed segment.
        Store,
    }

    fn steps() -> impl Strategy<Value = Step> {
        let outcome = prop_oneof![
            3 => Just(None),
            2 => Just(Some(Outcome::Completed)),
            1 => Just(Some(Outcome::Refused(Refusal::RateLimited))),
        ];
        prop_oneof![
            40 => (any::<u8>(), 0..3_u64, outcome).prop_map(|(key, hour, outcome)| Step::Use { key, hour, outcome }),
            20 => any::<usize>().prop_map(|used| Step::End { used }),
            2 => Just(Step::CloseSegment),
            2 => Just(Step::Store),
        ]
    }

    fn owner(number: u8) -> (OrgId, KeyId) {
        let number = number % (2 * KEYS);
        let org = OrgId::from_bytes([number / KEYS; 16]);
        // The ids of neighbours share their first characters.
        (org, format!("abcdef{:03}", number % KEYS).parse().unwrap())
    }

    /// A journal that is counted key by key in one table, and by a live index and the rows of a database.
    struct History {
        plain: SegmentUsage,
        live: LiveIndex,
        stored: rusqlite::Connection,
        at: Point,
        uses: u128,
        _directory: tempfile::TempDir,
    }

    impl History {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self {
                plain: SegmentUsage::new(1, FxHashMap::default()),
                live: LiveIndex::new(SegmentIndex::new(1, 1 << 18, FxHashMap::default())),
                stored: database::create(&directory.path().join(database::FILE)).unwrap(),
                at: Point { segment: 1, offset: 100 },
                uses: 0,
                _directory: directory,
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Use { key: number, hour, outcome } => {
                    self.uses += 1;
                    let (org, key) = owner(number);
                    let open = OpenUse {
                        id: Uuid::from_u128(self.uses),
                        segment: self.at.segment,
                        listed_by: 0,
                        is_by_key: true,
                        time: Micros((400_000 + hour) * HOUR),
                        number: None,
                        key_id: Some(key),
                        user_id: None,
                        org_id: Some(org),
                        is_change: false,
                        route: RouteName::of_action(["items.list", "items.get", "GET /x"][usize::from(number % 3)]),
                        units: u32::from(number % 5),
                    };
                    let mut used = IndexedUse::from_open(&open);
                    (used.outcome, used.bytes) = (outcome, [1, u64::from(number)]);
                    self.write(IndexedEvent::Use(used));
                }
                Step::End { used } => {
                    let id = 1 + used as u128 % (self.uses + 1);
                    let cost = (used % 3 == 0).then_some(used as u64 % 7);
                    let outcome = [Outcome::Completed, Outcome::Aborted][used % 2];
                    self.write(IndexedEvent::Outcome(IndexedEnd { id, outcome, cost, bytes: [used as u64 % 11, 1] }));
                }
                Step::CloseSegment => {
                    self.at.segment += 1;
                    self.live.add_batch(self.at, 0, &[]);
                }
                Step::Store => {
                    let oldest = self.live.lock().closed.first().cloned();
                    if let Some(oldest) = oldest {
                        for counts in oldest.usage.slices(3) {
                            usage_rows::add_stored(&self.stored, &with_lines(counts)).unwrap();
                        }
                        self.live.forget_to(oldest.segment);
                    }
                }
            }
        }

        fn write(&mut self, event: IndexedEvent) {
            self.plain.count(&event, self.at.offset);
            self.live.add_batch(self.at, 100, &[PlacedEvent { event, at: 0 }]);
            self.at.offset += 100;
        }

        /// The usage of the keys of an organization, as a reader adds it.
        fn counted(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
            let mut counted = usage_rows::load(&self.stored, org, keys, 0).unwrap();
            self.live.usage(org, keys).into_iter().for_each(|(_, counts)| counted.extend(counts));
            with_lines(counted)
        }

        fn stored_routes(&self) -> BTreeMap<RouteHour, UsageSums> {
            let mut stored = Vec::new();
            for org in [0, 1].map(|number| OrgId::from_bytes([number; 16])) {
                let note = |route, hour, sums: &UsageSums| stored.push(((org, route, hour), sums.clone()));
                usage_rows::for_each_route(&self.stored, org, 0, note).unwrap();
            }
            sorted_routes(stored.into_iter())
        }

        fn check(&self, keys: impl Iterator<Item = u8>) -> Result<(), TestCaseError> {
            let mut of_orgs: FxHashMap<OrgId, FxHashSet<KeyId>> = FxHashMap::default();
            for (org, key) in keys.map(owner) {
                of_orgs.entry(org).or_default().insert(key);
            }
            for (org, keys) in of_orgs {
                let found = self.counted(org, &keys);
                let expected = with_lines(self.plain.select(org, &keys));
                prop_assert_eq!(sorted(&found), sorted(&expected));
                prop_assert_eq!(&found.late_outcomes, &Vec::<LateOutcome>::new(), "each belongs to a use");
            }
            Ok(())
        }
    }

    fn sorted_routes(all: impl Iterator<Item = (RouteHour, UsageSums)>) -> BTreeMap<RouteHour, UsageSums> {
        let mut sums: BTreeMap<RouteHour, UsageSums> = BTreeMap::new();
        all.for_each(|(place, more)| sums.entry(place).or_default().add(&more));
        sums
    }

    /// The counts with lines that say where they are; places go on from segment to segment.
    fn with_lines(mut counts: UsageCounts) -> UsageCounts {
        let Ok(()) = counts.store_lines(|point| Ok::<_, Infallible>(Some(point.offset.to_string().into_bytes())));
        counts
    }

    fn sorted(counts: &UsageCounts) -> Vec<(KeyOwner, KeyUsage)> {
        let mut keys: Vec<_> = counts.keys.iter().map(|(owner, usage)| (*owner, usage.clone())).collect();
        keys.iter_mut().for_each(|(_, usage)| usage.hours.sort_unstable_by_key(|(hour, _)| *hour));
        keys.sort_by_key(|(owner, _)| *owner);
        keys
    }

    /// The hours of the day of a use are together already when it ends, and costs less than it had reserved.
    #[test]
    fn late_end_lowers_the_units_of_its_day() {
        let mut usage = History::new();
        let stored = |usage: &mut History| {
            usage.step(Step::CloseSegment);
            usage.step(Step::Store);
            usage_rows::tidy(&usage.stored, 0, 500_000).unwrap();
            usage.stored_routes().values().map(UsageSums::units).sum::<u64>()
        };
        usage.step(Step::Use { key: 1, hour: 1, outcome: None });
        assert_eq!(stored(&mut usage), 1, "reserved");
        usage.write(IndexedEvent::Outcome(IndexedEnd {
            id: 1,
            outcome: Outcome::Completed,
            cost: Some(0),
            bytes: [0; 2],
        }));
        assert_eq!(stored(&mut usage), 0, "it has cost nothing");
    }

    proptest! {
        #[test]
        fn usage_is_that_of_a_plain_table_whatever_is_stored(
            history in prop::collection::vec(steps(), 0..400), one in any::<u8>(),
        ) {
            let mut usage = History::new();
            for (number, step) in history.into_iter().enumerate() {
                usage.step(step);
                if number % 97 == 0 {
                    usage.check([one].into_iter())?;
                }
            }
            usage.check(0..2 * KEYS)?;
            // All of it is stored, also the uses that are open.
            for step in [Step::CloseSegment].into_iter().chain([Step::Store; 60]) {
                usage.step(step);
            }
            usage.check(0..2 * KEYS)?;
            let expected = sorted_routes(usage.plain.routes().iter().map(|(place, sums)| (*place, sums.clone())));
            prop_assert_eq!(&usage.stored_routes(), &expected);
            // Days have the sums of their hours.
            usage_rows::tidy(&usage.stored, 0, 500_000).unwrap();
            let by_day = expected.into_iter().map(|((org, route, hour), sums)| ((org, route, hour / 24 * 24), sums));
            prop_assert_eq!(usage.stored_routes(), sorted_routes(by_day));
        }
    }
}
