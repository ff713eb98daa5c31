//! Usage in one segment, counted event by event: of keys and sessions, and of routes.

use std::iter;
use std::mem;
use std::num::NonZero;

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::indexed_use::{IndexedEnd, IndexedEvent, IndexedUse, KeyOwner};
use super::usage_counts::{KeyUsage, LastUseLines, LateOutcome, LineRef, RouteHour, UsageCounts, hour_of};
use super::usage_sums::UsageSums;
use crate::audit::format::event::UseEvent;
use crate::audit::format::route_name::RouteName;
use crate::audit::format::segment::Point;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Place of a line in the segment, whose header is at 0.
type Offset = Option<NonZero<u64>>;

/// Usage in one segment.
///
/// - Events must be given in the order of the segment.
/// - It has the places of lines, not the lines: memory is some 150 bytes for each key, in one table that is freed at
///   once, and bounded by the keys, the hours and the open uses of the segment.
#[derive(Debug)]
pub(crate) struct SegmentUsage {
    segment: u64,
    /// In the order of their first uses, so that a reader can go through them in several steps.
    keys: IndexMap<KeyOwner, UsedKey, FxBuildHasher>,
    /// Hours other than the last one that was counted, of keys that were used in several.
    earlier: FxHashMap<KeyOwner, Vec<(u64, UsageSums)>>,
    routes: FxHashMap<RouteHour, UsageSums>,
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
    sums: UsageSums,
    /// The last admitted use.
    begun: Offset,
    /// Its outcome, when that is a line of its own.
    ended: Offset,
    /// The last refused use.
    refused: Offset,
}

/// A use that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPlace {
    owner: KeyOwner,
    /// `None` when it began in an earlier segment.
    begun: Offset,
    hour: u64,
    route: Option<RouteName>,
    units: u64,
}

impl OpenPlace {
    /// The place of a use that began in an earlier segment; `None` when it is no usage.
    pub(crate) fn of_earlier(begun: &UseEvent<'_>) -> Option<Self> {
        Self::new(&IndexedUse::from_event(begun), None)
    }

    /// The place of the last use of a key, whose end is looked for: of nothing else than its line.
    pub(crate) fn of_last(owner: KeyOwner) -> Self {
        Self { owner, begun: None, hour: 0, route: None, units: 0 }
    }

    fn new(used: &IndexedUse, begun: Offset) -> Option<Self> {
        let IndexedUse { time, route, units, .. } = *used;
        Some(Self { owner: used.owner()?, begun, hour: hour_of(time), route, units })
    }
}

impl SegmentUsage {
    /// No usage in the segment with this number, which begins with these open uses.
    pub(crate) fn new(segment: u64, open_uses: FxHashMap<u128, OpenPlace>) -> Self {
        Self {
            segment,
            keys: IndexMap::default(),
            earlier: FxHashMap::default(),
            routes: FxHashMap::default(),
            open: open_uses,
            late_outcomes: Vec::new(),
        }
    }

    /// The uses that are open at the end of what was counted.
    pub(crate) fn open_uses(&self) -> FxHashMap<u128, OpenPlace> {
        self.open.iter().map(|(id, open)| (*id, OpenPlace { begun: None, ..*open })).collect()
    }

    /// Counts an event, whose line is at this offset.
    pub(crate) fn count(&mut self, event: &IndexedEvent, offset: u64) {
        match event {
            IndexedEvent::Use(used) => self.count_use(used, NonZero::new(offset)),
            IndexedEvent::Outcome(end) => self.count_end(end, NonZero::new(offset)),
            IndexedEvent::Carried(_) => {}
        }
    }

    /// Counts a use, unless it is a change by management or an attempt with an unknown key.
    fn count_use(&mut self, used: &IndexedUse, offset: Offset) {
        let Some(place) = OpenPlace::new(used, offset) else { return };
        let OpenPlace { owner, hour, route, .. } = place;
        let key = self.keys.entry(owner).or_default();
        if key.hour != hour {
            // Nearly every key has one hour.
            if key.sums != UsageSums::default() {
                self.earlier.entry(owner).or_default().push((key.hour, mem::take(&mut key.sums)));
            }
            key.hour = hour;
        }
        key.sums.add_use(used);
        self.routes.entry((owner.0, route, hour)).or_default().add_use(used);
        // A refused use is not a use in the sense of "last used".
        if used.is_refused() {
            key.refused = offset;
            return;
        }
        (key.begun, key.ended) = (offset, None);
        if used.outcome.is_none() {
            self.open.insert(used.id.as_u128(), place);
        }
    }

    /// Counts the end of a use in the hour in which it began, and notes its line. Most outcomes belong to uses that
    /// are the last ones of their keys.
    fn count_end(&mut self, end: &IndexedEnd, offset: Offset) {
        let Some(OpenPlace { owner, begun, hour, route, units }) = self.open.remove(&end.id) else { return };
        self.routes.entry((owner.0, route, hour)).or_default().add_end(end, units);
        let key = self.keys.entry(owner).or_default();
        if key.sums == UsageSums::default() {
            key.hour = hour;
        }
        if key.hour == hour {
            key.sums.add_end(end, units);
        } else {
            let mut sums = UsageSums::default();
            sums.add_end(end, units);
            self.earlier.entry(owner).or_default().push((hour, sums));
        }
        match key.begun {
            Some(_) if key.begun == begun => key.ended = offset,
            // A later use has replaced it.
            Some(_) => {}
            // It began in an earlier segment, and may be the last use of the key.
            None => {
                let line = self.line(offset).filter(|_| owner.1.is_some());
                self.late_outcomes.extend(line.map(|line| LateOutcome { owner, id: end.id, line }));
            }
        }
    }

    /// The usage of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        let owners = keys.iter().map(|key| (org, Some(*key)));
        let found = owners.filter_map(|owner| Some((owner, self.keys.get(&owner)?)));
        let is_wanted =
            |late: &&LateOutcome| late.owner.0 == org && late.owner.1.is_some_and(|key| keys.contains(&key));
        let late = self.late_outcomes.iter().filter(is_wanted).cloned().collect();
        UsageCounts { late_outcomes: late, ..self.counts(found, &self.open_last_uses(Some(org))) }
    }

    /// All usage, with at most this many keys at a time, in their order.
    pub(crate) fn slices(&self, length: usize) -> impl Iterator<Item = UsageCounts> {
        let mut keys: Vec<_> = self.keys.iter().map(|(owner, key)| (*owner, key)).collect();
        keys.sort_unstable_by_key(|(owner, _)| *owner);
        let open = self.open_last_uses(None);
        // At the end: what a use of the segment has replaced is not ended by them.
        let late = UsageCounts {
            late_outcomes: self.late_outcomes.clone(),
            routes: self.routes.clone(),
            ..UsageCounts::default()
        };
        let mut keys = keys.into_iter().peekable();
        let of_keys = iter::from_fn(move || {
            keys.peek()?;
            Some(self.counts(keys.by_ref().take(length), &open))
        });
        of_keys.chain([late])
    }

    /// Sums of the routes, by organization and hour.
    pub(crate) fn routes(&self) -> &FxHashMap<RouteHour, UsageSums> {
        &self.routes
    }

    /// Calls `each` with the sums of the keys of one organization or all, by hour: those from a place on, at most so
    /// many keys. Returns the place from which to go on; `None` at the end.
    pub(crate) fn for_each_key(
        &self,
        org: Option<OrgId>,
        (from, count): (usize, usize),
        mut each: impl FnMut(KeyOwner, u64, &UsageSums),
    ) -> Option<usize> {
        let to = from.saturating_add(count).min(self.keys.len());
        let keys = self.keys.get_range(from..to)?.iter();
        for (owner, used) in keys.filter(|((of, _), _)| org.is_none_or(|org| *of == org)) {
            each(*owner, used.hour, &used.sums);
            let earlier = self.earlier.get(owner).into_iter().flatten();
            earlier.for_each(|(hour, sums)| each(*owner, *hour, sums));
        }
        (to < self.keys.len()).then_some(to)
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
            self.earlier.get(&owner).into_iter().flatten().for_each(|(hour, sums)| usage.add(*hour, sums));
            usage.add(key.hour, &key.sums);
            (owner, usage)
        };
        UsageCounts { keys: keys.map(usage).collect(), ..UsageCounts::default() }
    }

    fn line(&self, offset: Offset) -> Option<LineRef> {
        offset.map(|offset| LineRef::At(Point { segment: self.segment, offset: offset.get() }))
    }
}
