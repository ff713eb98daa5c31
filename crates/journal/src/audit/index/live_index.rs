//! The index of the open segment, in memory.
//!
//! The thread that writes a batch adds its events, while it holds the segment: no line is read again to be indexed, and
//! the counts are those of the file at every moment. A closed segment stays here until its index is in a file, and its
//! usage until it is added up in the database.
//!
//! - The maintenance thread packs counts that are full, and the usage of closed segments, without the lock that the
//!   threads that write take: the memory of a key is that of its packed usage, a second after.

use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::IndexedEvent;
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_counts::UsageCounts;
use super::usage_run::{self, UsageRun};
use crate::audit::filter::Filter;
use crate::audit::format::segment::{Block, Point};
use domain::identity::OrgId;
use domain::key::KeyId;

/// The index of the open segment, and of closed ones whose index is not in a file yet. Shared by the threads that write
/// and by readers of this process.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    segments: Mutex<LiveSegments>,
    /// Changed by the maintenance thread alone; no thread that writes waits for it.
    waiting: Mutex<WaitingUsage>,
}

/// Usage of closed segments that is not added up yet: memory for each key, not for each use. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WaitingUsage {
    /// The point up to which usage is added up.
    pub(crate) from: Point,
    pub(crate) to: Point,
    pub(crate) segments: usize,
    /// Oldest first.
    runs: Vec<Arc<UsageRun>>,
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

impl LiveIndex {
    /// Continues with the index of the last segment; the usage up to `covered` is added up.
    pub(crate) fn new(active: SegmentIndex, covered: Point) -> Self {
        let segments = Mutex::new(LiveSegments { active, closed: Vec::new() });
        Self { segments, waiting: Mutex::new(WaitingUsage::after(covered)) }
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

    /// The indexes of all segments that are here, oldest first, once nothing is written any more.
    pub(crate) fn all(&self) -> Vec<SegmentIndex> {
        self.lock().iter().cloned().collect()
    }

    /// Packs what is full of the counts of the open segment. Threads that write wait for none of it.
    pub(crate) fn pack_full(&self) {
        let unpacked = self.lock().active.usage.unpacked();
        for counts in unpacked {
            let run = Arc::new(UsageRun::pack(&counts));
            // Its segment may have been closed meanwhile; it is packed with that then.
            self.lock().active.usage.replace(&counts, run);
            // The last reference: thousands of keys are freed without the lock.
            drop(counts);
        }
    }

    /// Adds the usage of the segment that follows what is waiting.
    pub(crate) fn add_waiting(&self, index: &SegmentIndex) {
        // Changed by no other thread meanwhile.
        let mut runs = self.waiting().runs;
        index.usage.to_runs().for_each(|run| usage_run::append(&mut runs, run));
        let mut waiting = self.lock_waiting();
        waiting.to = Point { segment: index.segment, offset: index.length };
        waiting.segments += 1;
        waiting.runs = runs;
    }

    /// The usage that is not added up yet.
    pub(crate) fn waiting(&self) -> WaitingUsage {
        self.lock_waiting().clone()
    }

    /// The number of segments whose usage is not added up yet.
    pub(crate) fn waiting_segments(&self) -> usize {
        self.lock_waiting().segments
    }

    /// The point up to which usage is added up.
    pub(crate) fn covered(&self) -> Point {
        self.lock_waiting().from
    }

    /// The point up to which the usage of closed segments is counted.
    pub(crate) fn counted_to(&self) -> Point {
        self.lock_waiting().to
    }

    /// Forgets the usage that is added up, up to this point.
    pub(crate) fn set_covered(&self, covered: Point) {
        *self.lock_waiting() = WaitingUsage::after(covered);
    }

    /// Forgets closed segments up to this one: their index is in files.
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
        let segments = self.lock();
        let closed = segments.closed.clone();
        let active = &segments.active;
        let open = stretch(active);
        let (full, last) = active.usage.split(org, keys);
        drop(segments);
        let mut counts = full.select(org, keys);
        counts.extend(last);
        let closed = closed.iter().map(|index| (stretch(index), index.usage.select(org, keys)));
        closed.chain([(open, counts)]).filter(|(stretch, _)| stretch.segment > 0).collect()
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

    fn lock_waiting(&self) -> MutexGuard<'_, WaitingUsage> {
        self.waiting.lock()
    }

    fn lock(&self) -> MutexGuard<'_, LiveSegments> {
        self.segments.lock()
    }
}

impl WaitingUsage {
    fn after(covered: Point) -> Self {
        Self { from: covered, to: covered, segments: 0, runs: Vec::new() }
    }

    /// The usage of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        let mut counts = UsageCounts::default();
        self.runs.iter().for_each(|run| counts.extend(run.select(org, keys)));
        counts
    }

    /// All of it in one run.
    pub(crate) fn into_run(self) -> Arc<UsageRun> {
        let merged = self.runs.into_iter().reduce(|before, run| Arc::new(before.merge(&run)));
        merged.unwrap_or_default()
    }
}

impl LiveSegments {
    fn begin_segment(&mut self, number: u64) {
        let open_uses = self.active.usage.take_open_uses();
        let next = SegmentIndex::new(number, self.active.members.part, open_uses);
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

fn stretch(index: &SegmentIndex) -> Stretch {
    Stretch { segment: index.segment, from: index.counted_from, to: index.length }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::audit::format::event::OpenUse;
    use crate::audit::format::record::Outcome;
    use crate::audit::index::indexed_use::IndexedUse;
    use crate::audit::index::usage_counts::{HOUR, KeyUsage, LateOutcome};
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
        /// The counts of the open segment are full.
        FillCounts,
        Pack,
        CloseSegment,
        /// The maintenance thread has written the index of the oldest closed segment.
        IndexClosed,
        AddUp,
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
            2 => Just(Step::FillCounts),
            2 => Just(Step::Pack),
            2 => Just(Step::CloseSegment),
            2 => Just(Step::IndexClosed),
            1 => Just(Step::AddUp),
        ]
    }

    fn owner(number: u8) -> (OrgId, KeyId) {
        let number = number % (2 * KEYS);
        let org = OrgId::from_bytes([number / KEYS; 16]);
        // The ids of neighbours share their first characters.
        (org, format!("abcdef{:03}", number % KEYS).parse().unwrap())
    }

    /// A journal that is counted key by key in one table, and by a live index.
    struct History {
        plain: UsageCounts,
        live: LiveIndex,
        /// Usage that was added up, as the database has it.
        stored: UsageCounts,
        at: Point,
        uses: u128,
    }

    impl History {
        fn new() -> Self {
            let live = LiveIndex::new(SegmentIndex::new(1, 1 << 18, FxHashMap::default()), Point::START);
            let at = Point { segment: 1, offset: 0 };
            Self { plain: UsageCounts::default(), live, stored: UsageCounts::default(), at, uses: 0 }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Use { key, hour, outcome } => {
                    self.uses += 1;
                    let (org, key) = owner(key);
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
                    };
                    let mut used = IndexedUse::from_open(&open);
                    used.outcome = outcome;
                    self.write(IndexedEvent::Use(used));
                }
                Step::End { used } => self.write(IndexedEvent::Outcome(1 + used as u128 % (self.uses + 1))),
                Step::FillCounts => self.live.lock().active.usage.begin_counts(),
                Step::Pack => self.live.pack_full(),
                Step::CloseSegment => {
                    self.at = Point { segment: self.at.segment + 1, offset: 0 };
                    self.live.add_batch(self.at, 0, &[]);
                }
                Step::IndexClosed => {
                    let oldest = self.live.lock().closed.first().cloned();
                    if let Some(oldest) = oldest {
                        self.live.add_waiting(&oldest);
                        self.live.forget_to(oldest.segment);
                    }
                }
                Step::AddUp => {
                    let waiting = self.live.waiting();
                    let to = waiting.to;
                    waiting.into_run().slices(3).for_each(|counts| self.stored.extend(counts));
                    self.live.set_covered(to);
                }
            }
        }

        fn write(&mut self, event: IndexedEvent) {
            self.plain.count(&event, self.at);
            self.live.add_batch(self.at, 100, &[PlacedEvent { event, at: 0 }]);
            self.at.offset += 100;
        }

        /// The usage of the keys of an organization, as a reader adds it.
        fn counted(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
            let mut counted = self.stored.select(org, keys);
            let waiting = self.live.waiting();
            let segments = self.live.usage(org, keys);
            counted.extend(waiting.select(org, keys));
            // A closed segment whose usage waits was forgotten.
            segments.into_iter().for_each(|(_, counts)| counted.extend(counts));
            counted
        }

        fn check(&self, keys: impl Iterator<Item = u8>) -> Result<(), TestCaseError> {
            let mut of_orgs: FxHashMap<OrgId, FxHashSet<KeyId>> = FxHashMap::default();
            for (org, key) in keys.map(owner) {
                of_orgs.entry(org).or_default().insert(key);
            }
            for (org, keys) in of_orgs {
                let found = self.counted(org, &keys);
                let expected = self.plain.select(org, &keys);
                prop_assert_eq!(sorted(&found), sorted(&expected));
                prop_assert_eq!(&found.late_outcomes, &Vec::<LateOutcome>::new(), "each belongs to a use");
            }
            Ok(())
        }
    }

    fn sorted(counts: &UsageCounts) -> Vec<((OrgId, KeyId), KeyUsage)> {
        let mut keys: Vec<_> = counts.keys.iter().map(|(owner, usage)| (*owner, (**usage).clone())).collect();
        keys.sort_by_key(|(owner, _)| *owner);
        keys
    }

    proptest! {
        #[test]
        fn usage_is_that_of_a_plain_table_whatever_is_packed(
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
            // All of it is packed, merged and added up.
            for step in [Step::CloseSegment].into_iter().chain([Step::IndexClosed; 60]).chain([Step::AddUp]) {
                usage.step(step);
            }
            prop_assert_eq!(sorted(&usage.stored), sorted(&usage.plain));
        }
    }

    #[test]
    fn counts_of_more_keys_than_a_table_takes_are_packed() {
        let mut usage = History::new();
        let uses = 60_000_u32;
        for number in 0..uses {
            let key = format!("abc{number:06}").parse().unwrap();
            let open = OpenUse {
                id: Uuid::from_u128(number.into()),
                segment: 1,
                listed_by: 0,
                is_by_key: true,
                time: Micros(HOUR),
                number: None,
                key_id: Some(key),
                user_id: None,
                org_id: Some(owner(0).0),
                is_change: false,
            };
            usage.write(IndexedEvent::Use(IndexedUse::from_open(&open)));
        }
        assert_eq!(usage.live.lock().active.usage.unpacked().len(), 2);
        usage.live.pack_full();
        assert_eq!(usage.live.lock().active.usage.unpacked().len(), 0);
        let counted = usage.live.usage(owner(0).0, &usage.plain.keys.keys().map(|(_, key)| *key).collect());
        assert_eq!(counted.len(), 1);
        assert!(counted[0].1.keys == usage.plain.keys && usage.plain.keys.len() == uses as usize);
    }
}
