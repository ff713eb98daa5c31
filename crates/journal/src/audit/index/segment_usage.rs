//! Usage of keys in one segment, counted event by event.

use std::iter;
use std::num::NonZero;

use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::{IndexedEvent, IndexedUse, KeyOwner};
use super::usage_counts::{HourCounts, KeyUsage, LastUseLines, LateOutcome, LineRef, UsageCounts, hour_of};
use crate::audit::format::segment::Point;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Place of a line in the segment, whose header is at 0.
type Offset = Option<NonZero<u64>>;

/// Usage of keys in one segment.
///
/// - Events must be given in the order of the segment.
/// - It has the places of lines, not the lines: memory is some 130 bytes for each key, in one table that is freed at
///   once, and bounded by the keys, the hours and the open uses of the segment.
#[derive(Debug)]
pub(crate) struct SegmentUsage {
    segment: u64,
    keys: FxHashMap<KeyOwner, UsedKey>,
    /// Hours before the last one that was counted, of keys that were used in several.
    earlier: FxHashMap<KeyOwner, Vec<(u64, HourCounts)>>,
    /// Uses that have not ended, by id, including those of earlier segments.
    open: FxHashMap<u128, OpenPlace>,
    /// As in [`UsageCounts`].
    late_outcomes: Vec<LateOutcome>,
}

/// Usage of one key.
#[derive(Debug, Default)]
struct UsedKey {
    /// The hour of the use that was counted last.
    hour: u64,
    counts: HourCounts,
    /// The last admitted use.
    begun: Offset,
    /// Its outcome, when that is a line of its own.
    ended: Offset,
    /// The last refused use.
    refused: Offset,
}

/// A use that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenPlace {
    owner: KeyOwner,
    /// `None` when it began in an earlier segment.
    begun: Offset,
}

impl SegmentUsage {
    /// No usage in the segment with this number, which begins with these open uses.
    pub(crate) fn new(segment: u64, open_uses: FxHashMap<u128, KeyOwner>) -> Self {
        let open = open_uses.into_iter().map(|(id, owner)| (id, OpenPlace { owner, begun: None })).collect();
        Self { segment, keys: FxHashMap::default(), earlier: FxHashMap::default(), open, late_outcomes: Vec::new() }
    }

    /// The uses that are open at the end of what was counted.
    pub(crate) fn open_uses(&self) -> FxHashMap<u128, KeyOwner> {
        self.open.iter().map(|(id, open)| (*id, open.owner)).collect()
    }

    /// Counts an event, whose line is at this offset.
    pub(crate) fn count(&mut self, event: &IndexedEvent, offset: u64) {
        match event {
            IndexedEvent::Use(used) => self.count_use(used, NonZero::new(offset)),
            IndexedEvent::Outcome(id) => self.count_outcome(*id, NonZero::new(offset)),
            IndexedEvent::Carried(_) => {}
        }
    }

    /// Counts a use when it is one of a key.
    fn count_use(&mut self, used: &IndexedUse, offset: Offset) {
        let Some(owner) = used.key_owner() else { return };
        let key = self.keys.entry(owner).or_default();
        let hour = hour_of(used.time);
        if key.hour != hour {
            // Nearly every key has one hour.
            if key.counts != HourCounts::default() {
                self.earlier.entry(owner).or_default().push((key.hour, key.counts));
            }
            (key.hour, key.counts) = (hour, HourCounts::default());
        }
        // A refused use is not a use in the sense of "last used".
        if used.is_refused() {
            key.counts.add(HourCounts { requests: 0, refusals: used.uses() });
            key.refused = offset;
            return;
        }
        key.counts.add(HourCounts { requests: used.uses(), refusals: 0 });
        (key.begun, key.ended) = (offset, None);
        if used.outcome.is_none() {
            self.open.insert(used.id.as_u128(), OpenPlace { owner, begun: offset });
        }
    }

    /// Notes the outcome of a use. Most outcomes belong to uses that are the last ones of their keys.
    fn count_outcome(&mut self, id: u128, offset: Offset) {
        let Some(OpenPlace { owner, begun }) = self.open.remove(&id) else { return };
        match self.keys.get_mut(&owner).filter(|key| key.begun.is_some()) {
            Some(key) if key.begun == begun => key.ended = offset,
            // A later use has replaced it.
            Some(_) => {}
            // It began in an earlier segment, and may be the last use of the key.
            None => {
                let line = self.line(offset);
                self.late_outcomes.extend(line.map(|line| LateOutcome { owner, id, line }));
            }
        }
    }

    /// The usage of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        let owners = keys.iter().map(|key| (org, *key));
        let found = owners.filter_map(|owner| Some((owner, self.keys.get(&owner)?)));
        let late = self.late_outcomes.iter().filter(|late| late.owner.0 == org && keys.contains(&late.owner.1));
        UsageCounts { late_outcomes: late.cloned().collect(), ..self.counts(found, &self.open_last_uses(Some(org))) }
    }

    /// All usage, with at most this many keys at a time, in their order.
    pub(crate) fn slices(&self, length: usize) -> impl Iterator<Item = UsageCounts> {
        let mut keys: Vec<_> = self.keys.iter().map(|(owner, key)| (*owner, key)).collect();
        keys.sort_unstable_by_key(|(owner, _)| *owner);
        let open = self.open_last_uses(None);
        // At the end: what a use of the segment has replaced is not ended by them.
        let late = UsageCounts { late_outcomes: self.late_outcomes.clone(), ..UsageCounts::default() };
        let mut keys = keys.into_iter().peekable();
        let of_keys = iter::from_fn(move || {
            keys.peek()?;
            Some(self.counts(keys.by_ref().take(length), &open))
        });
        of_keys.chain([late])
    }

    /// Ids of the last uses that are open, by their keys, of one organization or all.
    fn open_last_uses(&self, org: Option<OrgId>) -> FxHashMap<KeyOwner, u128> {
        let of_org = self.open.iter().filter(|(_, open)| org.is_none_or(|org| open.owner.0 == org));
        let is_last = |open: &OpenPlace| {
            open.begun.is_some() && self.keys.get(&open.owner).is_some_and(|key| key.begun == open.begun)
        };
        of_org.filter(|(_, open)| is_last(open)).map(|(id, open)| (open.owner, *id)).collect()
    }

    fn counts<'a>(
        &self,
        keys: impl Iterator<Item = (KeyOwner, &'a UsedKey)>,
        open: &FxHashMap<KeyOwner, u128>,
    ) -> UsageCounts {
        let usage = |(owner, key): (KeyOwner, &UsedKey)| {
            let last = self.line(key.begun).map(|begun| LastUseLines {
                begun,
                ended: self.line(key.ended),
                open: open.get(&owner).copied(),
            });
            let mut usage = KeyUsage { hours: Vec::new(), last, refusal: self.line(key.refused) };
            let earlier = self.earlier.get(&owner).into_iter().flatten();
            earlier.chain([&(key.hour, key.counts)]).for_each(|(hour, counts)| usage.add(*hour, *counts));
            (owner, usage)
        };
        UsageCounts { keys: keys.map(usage).collect(), late_outcomes: Vec::new() }
    }

    fn line(&self, offset: Offset) -> Option<LineRef> {
        offset.map(|offset| LineRef::At(Point { segment: self.segment, offset: offset.get() }))
    }
}
