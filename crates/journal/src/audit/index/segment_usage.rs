//! Usage of keys in one segment: the counts of what is written now, and those that are full, which are packed soon.

use std::mem;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::{IndexedEvent, KeyOwner};
use super::usage_counts::UsageCounts;
use super::usage_run::UsageRun;
use crate::audit::format::segment::Point;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Keys of counts that are full: as many as a table of 32,768 places takes, so that it does not grow to twice of it,
/// which moves all keys while requests wait. It takes some 7 MiB.
const KEYS_OF_COUNTS: usize = (1 << 15) / 8 * 7;

/// Usage of keys in one segment. Clones share what is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentUsage {
    /// Oldest first.
    full: Vec<FullCounts>,
    /// Counts after them.
    counts: UsageCounts,
}

/// Counts of a part of a segment, counted to its end.
#[derive(Clone, Debug)]
enum FullCounts {
    /// To be packed by the maintenance thread.
    Counts(Arc<UsageCounts>),
    Packed(Arc<UsageRun>),
}

impl SegmentUsage {
    /// No usage in the segment that begins with these open uses.
    pub(crate) fn new(open_uses: FxHashMap<u128, KeyOwner>) -> Self {
        Self { full: Vec::new(), counts: UsageCounts::new(open_uses) }
    }

    /// Counts an event, whose line is at this point.
    pub(crate) fn count(&mut self, event: &IndexedEvent, at: Point) {
        self.counts.count(event, at);
        if self.counts.keys.len() >= KEYS_OF_COUNTS {
            self.begin_counts();
        }
    }

    /// Counts what follows apart from what was counted.
    pub(super) fn begin_counts(&mut self) {
        let next = UsageCounts::new(self.take_open_uses());
        self.full.push(FullCounts::Counts(Arc::new(mem::replace(&mut self.counts, next))));
    }

    /// Takes the open uses, when nothing more is counted here.
    pub(crate) fn take_open_uses(&mut self) -> FxHashMap<u128, KeyOwner> {
        mem::take(&mut self.counts.open_uses)
    }

    /// The usage of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        let mut selected = UsageCounts::default();
        self.full.iter().for_each(|full| selected.extend(full.select(org, keys)));
        selected.extend(self.counts.select(org, keys));
        selected
    }

    /// The same counts without what is counted now, and the usage of these keys in that.
    pub(crate) fn split(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> (Self, UsageCounts) {
        let full = Self { full: self.full.clone(), counts: UsageCounts::default() };
        (full, self.counts.select(org, keys))
    }

    /// The full counts that are not packed yet.
    pub(crate) fn unpacked(&self) -> Vec<Arc<UsageCounts>> {
        let unpacked = |full: &FullCounts| match full {
            FullCounts::Counts(counts) => Some(Arc::clone(counts)),
            FullCounts::Packed(_) => None,
        };
        self.full.iter().filter_map(unpacked).collect()
    }

    /// Replaces full counts by what was packed from them.
    pub(crate) fn replace(&mut self, unpacked: &Arc<UsageCounts>, run: Arc<UsageRun>) {
        let is_packed =
            |full: &&mut FullCounts| matches!(full, FullCounts::Counts(counts) if Arc::ptr_eq(counts, unpacked));
        if let Some(full) = self.full.iter_mut().find(is_packed) {
            *full = FullCounts::Packed(run);
        }
    }

    /// Packs what is full.
    pub(crate) fn pack(&mut self) {
        for counts in self.unpacked() {
            self.replace(&counts, Arc::new(UsageRun::pack(&counts)));
        }
    }

    /// All usage packed, oldest first, when nothing more is counted here.
    pub(crate) fn to_runs(&self) -> impl Iterator<Item = Arc<UsageRun>> {
        self.full.iter().map(FullCounts::to_run).chain([Arc::new(UsageRun::pack(&self.counts))])
    }
}

impl FullCounts {
    fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        match self {
            Self::Counts(counts) => counts.select(org, keys),
            Self::Packed(run) => run.select(org, keys),
        }
    }

    fn to_run(&self) -> Arc<UsageRun> {
        match self {
            Self::Counts(counts) => Arc::new(UsageRun::pack(counts)),
            Self::Packed(run) => Arc::clone(run),
        }
    }
}
