//! Usage of keys as it is stored and read: sums by the hour, and the last use and refusal of each key.

use rustc_hash::FxHashMap;

use super::indexed_use::KeyOwner;
use super::usage_sums::UsageSums;
use crate::audit::format::route_name::RouteName;
use crate::audit::format::segment::Point;
use domain::clock::Micros;
use domain::identity::OrgId;

/// Microseconds of an hour. Hours are numbered from the epoch.
pub(crate) const HOUR: u64 = 3_600_000_000;

/// A listed route, or none, of requests to an organization in an hour.
pub(crate) type RouteHour = (OrgId, Option<RouteName>, u64);

/// Usage of some keys within a stretch of the journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageCounts {
    pub(crate) keys: FxHashMap<KeyOwner, KeyUsage>,
    /// Outcomes of uses that began in an earlier stretch, of keys without an admitted use in this one. Such a use may
    /// be the last one of its key.
    pub(crate) late_outcomes: Vec<LateOutcome>,
    /// Sums of the routes, where all usage of the stretch is given.
    pub(crate) routes: FxHashMap<RouteHour, UsageSums>,
}

/// Usage of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    /// Hours with uses.
    pub(crate) hours: Vec<(u64, UsageSums)>,
    /// The last admitted use.
    pub(crate) last: Option<LastUseLines>,
    /// The last refused use.
    pub(crate) refusal: Option<LineRef>,
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

/// The number of the day that contains a time, in UTC. Days are numbered from the epoch.
pub(crate) fn day_of(time: Micros) -> u64 {
    hour_of(time) / 24
}

/// The number of the first hour of a day.
pub(crate) fn first_hour_of(day: u64) -> u64 {
    day.saturating_mul(24)
}

impl UsageCounts {
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
            let KeyUsage { last, refusal, .. } = usage;
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
        for outcome in later.late_outcomes {
            match self.keys.get_mut(&outcome.owner).and_then(|usage| usage.last.as_mut()) {
                Some(last) => last.end(outcome),
                None => self.late_outcomes.push(outcome),
            }
        }
        for (owner, usage) in later.keys {
            self.keys.entry(owner).or_default().extend(usage);
        }
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
    /// Adds uses in an hour.
    pub(crate) fn add(&mut self, hour: u64, more: &UsageSums) {
        match self.hours.iter_mut().find(|(number, _)| *number == hour) {
            Some((_, sums)) => sums.add(more),
            None => self.hours.push((hour, more.clone())),
        }
    }

    /// Adds the usage in the stretch that follows this one.
    pub(crate) fn extend(&mut self, later: Self) {
        later.hours.iter().for_each(|(hour, sums)| self.add(*hour, sums));
        self.last = later.last.or_else(|| self.last.take());
        self.refusal = later.refusal.or_else(|| self.refusal.take());
    }
}
