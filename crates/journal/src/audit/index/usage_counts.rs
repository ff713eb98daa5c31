//! Usage of keys, counted event by event: requests and refusals by the hour, and the last use and refusal of each key.

use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::{IndexedEvent, IndexedUse, KeyOwner};
use crate::audit::format::segment::Point;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Microseconds of an hour. Hours are numbered from the epoch.
pub(crate) const HOUR: u64 = 3_600_000_000;

/// Usage of keys within a stretch of the journal.
///
/// - Events must be given in the order of the journal. A stretch may begin anywhere: the uses that earlier stretches
///   left open are in `open_uses` from the beginning.
/// - It has the places of lines, not the lines: memory is some 250 bytes for each key, and bounded by the keys, the
///   hours and the open uses of the stretch. What is no longer counted on is packed
///   ([`super::usage_run`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageCounts {
    /// Boxed: the table is up to half empty, and growing moves all of it while requests wait.
    pub(crate) keys: FxHashMap<KeyOwner, Box<KeyUsage>>,
    /// Uses that have not ended, including those of earlier stretches.
    pub(crate) open_uses: FxHashMap<u128, KeyOwner>,
    /// Outcomes of uses that began in an earlier stretch, of keys without an admitted use in this one. Such a use may
    /// be the last one of its key.
    pub(crate) late_outcomes: Vec<LateOutcome>,
}

/// Usage of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    /// Hours with uses, mostly in order; the last one is the latest that was counted.
    pub(crate) hours: Vec<(u64, HourCounts)>,
    /// The last admitted use.
    pub(crate) last: Option<LastUseLines>,
    /// The last refused use.
    pub(crate) refusal: Option<LineRef>,
}

/// Requests and refusals of a key within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HourCounts {
    pub(crate) requests: u64,
    pub(crate) refusals: u64,
}

/// The lines of the last use of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastUseLines {
    /// Line of the use, or of the record.
    pub(crate) begun: LineRef,
    /// Line of the outcome; `None` while the use is open, and when `begun` is a record.
    pub(crate) ended: Option<LineRef>,
    /// Id of the use while it is open: the id by which its outcome is found.
    pub(crate) open: Option<u128>,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineRef {
    /// It is where it was written.
    At(Point),
    /// A copy, which outlives its segment.
    Stored(Vec<u8>),
}

/// An outcome of a use that began in an earlier stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateOutcome {
    pub(crate) owner: KeyOwner,
    /// Id of the use.
    pub(crate) id: u128,
    pub(crate) line: LineRef,
}

/// The number of the hour that contains a time.
pub(crate) fn hour_of(time: Micros) -> u64 {
    time.0 / HOUR
}

impl UsageCounts {
    /// Empty counts of the stretch that begins with these open uses.
    pub(crate) fn new(open_uses: FxHashMap<u128, KeyOwner>) -> Self {
        Self { open_uses, ..Self::default() }
    }

    /// Counts an event, whose line is at this point.
    pub(crate) fn count(&mut self, event: &IndexedEvent, at: Point) {
        match event {
            IndexedEvent::Use(used) => self.count_use(used, at),
            IndexedEvent::Outcome(id) => self.apply_outcome(*id, at),
            IndexedEvent::Carried(_) => {}
        }
    }

    /// Counts a use when it is one of a key.
    fn count_use(&mut self, used: &IndexedUse, at: Point) {
        let Some(owner) = used.key_owner() else { return };
        let usage = self.keys.entry(owner).or_default();
        let counts = usage.hour(hour_of(used.time));
        // A refused use is not a use in the sense of "last used".
        if used.is_refused() {
            counts.refusals = counts.refusals.saturating_add(used.uses());
            usage.refusal = Some(LineRef::At(at));
            return;
        }
        counts.requests = counts.requests.saturating_add(used.uses());
        let open = used.outcome.is_none().then_some(used.id.as_u128());
        usage.last = Some(LastUseLines { begun: LineRef::At(at), ended: None, open });
        if let Some(id) = open {
            self.open_uses.insert(id, owner);
        }
    }

    /// Notes the outcome of a use. Most outcomes belong to uses that are the last ones of their keys.
    fn apply_outcome(&mut self, id: u128, at: Point) {
        if let Some(owner) = self.open_uses.remove(&id) {
            self.end_use(LateOutcome { owner, id, line: LineRef::At(at) });
        }
    }

    fn end_use(&mut self, outcome: LateOutcome) {
        match self.keys.get_mut(&outcome.owner).and_then(|usage| usage.last.as_mut()) {
            Some(last) => last.end(outcome),
            // The use began in an earlier stretch, and the last use of the key may be this one.
            None => self.late_outcomes.push(outcome),
        }
    }

    /// The counts of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> Self {
        let used = keys.iter().filter_map(|key| Some(((org, *key), self.keys.get(&(org, *key))?.clone())));
        let late = self.late_outcomes.iter().filter(|late| late.owner.0 == org && keys.contains(&late.owner.1));
        Self { keys: used.collect(), open_uses: FxHashMap::default(), late_outcomes: late.cloned().collect() }
    }

    /// The last uses of keys that have not ended: they may end in what is counted next.
    pub(crate) fn open_last_uses(&self) -> FxHashMap<u128, KeyOwner> {
        self.keys.iter().filter_map(|(owner, usage)| Some((usage.last.as_ref()?.open?, *owner))).collect()
    }

    /// Copies all lines, in the order of the journal.
    pub(crate) fn store_lines<E>(
        &mut self,
        mut read: impl FnMut(Point) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<(), E> {
        let of_keys = self.keys.values_mut().flat_map(|usage| {
            let KeyUsage { last, refusal, .. } = &mut **usage;
            let last = last.iter_mut().flat_map(|last| [Some(&mut last.begun), last.ended.as_mut()]);
            last.flatten().chain(refusal)
        });
        let mut lines: Vec<&mut LineRef> =
            of_keys.chain(self.late_outcomes.iter_mut().map(|late| &mut late.line)).collect();
        lines.sort_by_key(|line| match line {
            LineRef::At(point) => Some(*point),
            LineRef::Stored(_) => None,
        });
        lines.into_iter().try_for_each(|line| line.store(&mut read))
    }

    /// Adds the counts of the stretch that follows this one.
    pub(crate) fn extend(&mut self, later: Self) {
        later.late_outcomes.into_iter().for_each(|outcome| self.end_use(outcome));
        for (owner, usage) in later.keys {
            self.keys.entry(owner).or_default().extend(*usage);
        }
        self.open_uses = later.open_uses;
    }
}

impl LastUseLines {
    /// Notes an outcome of the key, unless a later use has replaced the one that has ended.
    pub(crate) fn end(&mut self, outcome: LateOutcome) {
        if self.open == Some(outcome.id) {
            self.open = None;
            self.ended = Some(outcome.line);
        }
    }
}

impl LineRef {
    /// The copy of the line, if there is one.
    pub(crate) fn stored(&self) -> Option<&[u8]> {
        match self {
            Self::Stored(line) => Some(line),
            Self::At(_) => None,
        }
    }

    /// Copies the line by `read`, which may find that it is no longer there.
    fn store<E>(&mut self, read: &mut impl FnMut(Point) -> Result<Option<Vec<u8>>, E>) -> Result<(), E> {
        if let Self::At(point) = self
            && let Some(line) = read(*point)?
        {
            *self = Self::Stored(line);
        }
        Ok(())
    }
}

impl KeyUsage {
    /// The counts of an hour.
    pub(crate) fn hour(&mut self, hour: u64) -> &mut HourCounts {
        // Searched from the end: nearly every use is in the hour of the one before.
        let at = self.hours.iter().rposition(|(number, _)| *number == hour).unwrap_or_else(|| {
            // Nearly every key has one hour: room for more would double the memory of the key.
            self.hours.reserve_exact(1);
            self.hours.push((hour, HourCounts::default()));
            self.hours.len() - 1
        });
        &mut self.hours[at].1
    }

    /// Adds the usage in the stretch that follows this one.
    pub(crate) fn extend(&mut self, later: Self) {
        for (hour, HourCounts { requests, refusals }) in later.hours {
            let counts = self.hour(hour);
            counts.requests = counts.requests.saturating_add(requests);
            counts.refusals = counts.refusals.saturating_add(refusals);
        }
        self.last = later.last.or_else(|| self.last.take());
        self.refusal = later.refusal.or_else(|| self.refusal.take());
    }
}
