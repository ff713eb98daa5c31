//! The index of the open segment, in memory.
//!
//! The thread that writes a batch adds its events, while it holds the segment: no line is read again to be indexed, and
//! the counts are those of the file at every moment. A closed segment stays here until its index is in a file.

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

    /// Calls `each` with the index of each segment that is here, oldest first. Writing waits meanwhile.
    pub(crate) fn for_each<E>(&self, each: impl FnMut(&SegmentIndex) -> Result<(), E>) -> Result<(), E> {
        self.lock().iter().try_for_each(each)
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

    /// The blocks of each segment that is here that may hold records for a filter, with the length that is indexed.
    pub(crate) fn candidates(&self, filter: &Filter) -> FxHashMap<u64, (Vec<Block>, u64)> {
        let of = |index: &SegmentIndex| {
            let set = |hash: u64| Ok::<_, Infallible>(index.members.sets.get(&hash).copied().unwrap_or(0));
            let place = (index.segment, index.length, index.members.part);
            let Ok(blocks) = members::candidates(place, filter, &index.members.times, set);
            (index.segment, (blocks, index.length))
        };
        self.lock().iter().map(of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LiveSegments> {
        self.segments.lock().expect("nothing panics while it counts uses")
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
