//! The index of the open segment, in memory.
//!
//! The thread that writes a batch adds its events, while it holds the segment: no line is read again to be indexed, and
//! the counts are those of the file at every moment. A closed segment stays here until its index is in a file, and its
//! usage until it is added up in the database.

use std::convert::Infallible;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::IndexedEvent;
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_counts::UsageCounts;
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

/// Usage of closed segments that is not added up yet: memory for each key, not for each use.
#[derive(Clone, Debug)]
pub(crate) struct WaitingUsage {
    /// The point up to which usage is added up.
    pub(crate) from: Point,
    pub(crate) to: Point,
    pub(crate) segments: usize,
    pub(crate) counts: UsageCounts,
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

    /// Adds the usage of the segment that follows what is waiting.
    pub(crate) fn add_waiting(&self, index: &SegmentIndex) {
        let counts = index.counts.clone();
        let mut waiting = self.lock_waiting();
        waiting.to = Point { segment: index.segment, offset: index.length };
        waiting.segments += 1;
        waiting.counts.extend(counts);
    }

    /// A copy of the usage that is not added up yet.
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
        self.lock().closed.retain(|closed| closed.segment > segment);
    }

    /// The usage of these keys in each segment that is here, oldest first.
    pub(crate) fn usage(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> Vec<(Stretch, UsageCounts)> {
        let segments = self.lock();
        segments.iter().map(|index| (stretch(index), index.counts.select(org, keys))).collect()
    }

    /// The usage of these keys that is not added up yet.
    pub(crate) fn waiting_usage(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> WaitingUsage {
        let waiting = self.lock_waiting();
        WaitingUsage { counts: waiting.counts.select(org, keys), ..*waiting }
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
        self.waiting.lock().expect("nothing panics while it adds usage")
    }

    fn lock(&self) -> MutexGuard<'_, LiveSegments> {
        self.segments.lock().expect("nothing panics while it counts uses")
    }
}

impl WaitingUsage {
    fn after(covered: Point) -> Self {
        Self { from: covered, to: covered, segments: 0, counts: UsageCounts::default() }
    }
}

impl LiveSegments {
    fn begin_segment(&mut self, number: u64) {
        let open_uses = mem::take(&mut self.active.counts.open_uses);
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
