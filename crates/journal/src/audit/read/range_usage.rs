//! Usage of an organization or of one key in a range of time up to now, by the index: requests by outcome in each hour
//! or day, the busiest keys and routes.
//!
//! - No line is read: the sums of closed segments are in the database of the index, those of the open one in the memory
//!   of the process that writes it. While the index is behind, the call fails instead of showing less.
//! - Uses are counted at the time of their beginning, in hours and days of UTC.

use std::cmp::Reverse;
use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::stop::StopSignal;
use crate::audit::format::route_name::RouteName;
use crate::audit::format::segment::{self, Segment};
use crate::audit::index::live_index::{LiveIndex, Stretch};
use crate::audit::index::lookup::{self, StoredUsage};
use crate::audit::index::usage_counts::{HOUR, UsageCounts, day_of, first_hour_of, hour_of};
use crate::audit::index::usage_sums::UsageSums;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

/// A range of time that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageRange {
    /// This hour and the 23 before.
    Day,
    /// This day and the ones before, so many days together.
    Days(u16),
}

/// Usage in one hour or day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodUsage {
    /// Beginning of the hour or day, in UTC.
    pub start: Micros,
    /// The sums of the uses that began in it.
    pub sums: UsageSums,
}

/// Usage in the hours or days of a range, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSeries {
    /// All hours or days of the range, also those without uses.
    pub periods: Vec<PeriodUsage>,
    /// The time from which on uses are counted; `None` when that is the whole range.
    pub complete_from: Option<Micros>,
}

/// Requests and refusals of a key; of the web sessions of all users without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyKey {
    /// The key.
    pub key: Option<KeyId>,
    /// Admitted uses.
    pub requests: u64,
    /// Refused uses.
    pub refusals: u64,
}

/// Usage of an organization in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgUsage {
    /// Its hours or days.
    pub series: UsageSeries,
    /// The keys with most requests, admitted and refused, busiest first.
    pub keys: Vec<BusyKey>,
    /// The routes by their names with most requests, busiest first; without a name requests of no listed route.
    pub routes: Vec<(Option<String>, UsageSums)>,
}

impl UsageRange {
    /// The ranges that are shown.
    pub const ALL: [Self; 4] = [Self::Day, Self::Days(7), Self::Days(30), Self::Days(90)];

    /// The name in addresses, options and output: `24h`, or a number of days as `7d`.
    pub fn name(self) -> String {
        match self {
            Self::Day => "24h".to_owned(),
            Self::Days(days) => format!("{days}d"),
        }
    }

    /// The range among those that are shown that has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.name() == name)
    }

    /// Number of hours or days.
    fn periods(self) -> u64 {
        match self {
            Self::Day => 24,
            Self::Days(days) => days.into(),
        }
    }

    /// Hours of a period.
    fn hours(self) -> u64 {
        match self {
            Self::Day => 1,
            Self::Days(_) => 24,
        }
    }

    /// The number of the first hour of the range.
    pub(crate) fn first_hour(self, now: Micros) -> u64 {
        let last = match self {
            Self::Day => hour_of(now),
            Self::Days(_) => first_hour_of(day_of(now)),
        };
        last.saturating_sub((self.periods() - 1) * self.hours())
    }

    /// The beginning of the range: a whole hour, or a day in UTC.
    pub fn start(self, now: Micros) -> Micros {
        Micros(self.first_hour(now).saturating_mul(HOUR))
    }

    fn empty(self, now: Micros) -> Vec<PeriodUsage> {
        let start = |n: u64| Micros((self.first_hour(now) + n * self.hours()).saturating_mul(HOUR));
        (0..self.periods()).map(|n| PeriodUsage { start: start(n), sums: UsageSums::default() }).collect()
    }

    /// The hour or day among `periods` that contains an hour; `None` when it is outside of the range.
    fn period_of(self, periods: &mut [PeriodUsage], hour: u64) -> Option<&mut UsageSums> {
        let first = hour_of(periods.first()?.start);
        let place = usize::try_from(hour.checked_sub(first)? / self.hours()).ok()?;
        periods.get_mut(place).map(|period| &mut period.sums)
    }
}

/// Usage that is in memory, and not stored yet.
#[derive(Debug, Default)]
pub(crate) struct RecentUsage {
    /// Of keys, or of sessions without one: their requests and refusals in the range.
    pub(crate) keys: Vec<RecentKey>,
    /// Of listed routes, or of none, in each hour.
    pub(crate) routes: Vec<RecentRoute>,
}

/// A key, and its requests and refusals.
type RecentKey = (Option<KeyId>, [u64; 2]);
/// A route, an hour, and its sums.
type RecentRoute = (Option<RouteName>, u64, UsageSums);

/// A read of the usage in a range.
pub(crate) struct RangeRead<'a> {
    pub(crate) stored: StoredUsage,
    pub(crate) stop: &'a StopSignal,
    pub(crate) range: UsageRange,
    pub(crate) now: Micros,
}

/// Reads the usage of an organization in the journal of this process.
pub(crate) fn read_org(
    (directory, live): (&Path, &LiveIndex),
    (org, range, top): (OrgId, UsageRange, usize),
    now: Micros,
    stop: &StopSignal,
) -> io::Result<OrgUsage> {
    let first_hour = range.first_hour(now);
    // In this order, what leaves the memory is in the database, which is read next.
    let mut routes: Vec<(Stretch, RecentRoute)> = Vec::new();
    live.for_each_route(Some(org), |stretch, (_, route, hour), sums| {
        routes.push((stretch, (route, hour, sums.clone())));
    });
    let mut keys: Vec<(Stretch, RecentKey)> = Vec::new();
    live.for_each_key(Some(org), |stretch, (_, key), hour, sums| {
        if hour >= first_hour {
            keys.push((stretch, (key, [sums.requests, sums.refusals])));
        }
    });
    let stored = stored(directory, live)?;
    let recent = RecentUsage { keys: uncovered(keys, &stored).collect(), routes: uncovered(routes, &stored).collect() };
    RangeRead { stored, stop, range, now }.of_org(org, recent, top)
}

/// Reads the usage of a key in the journal of this process.
pub(crate) fn read_key(
    (directory, live): (&Path, &LiveIndex),
    (org, key, range): (OrgId, KeyId, UsageRange),
    now: Micros,
    stop: &StopSignal,
) -> io::Result<UsageSeries> {
    let recent = live.usage(org, &[key].into_iter().collect());
    let stored = stored(directory, live)?;
    let recent: Vec<UsageCounts> = uncovered(recent, &stored).collect();
    RangeRead { stored, stop, range, now }.of_key(org, key, &recent)
}

/// Usage in memory, without stretches of the journal that are stored meanwhile.
pub(crate) fn uncovered<T>(live: Vec<(Stretch, T)>, stored: &StoredUsage) -> impl Iterator<Item = T> {
    let covered = stored.covered;
    live.into_iter().filter(move |(stretch, _)| stretch.follows(covered)).map(|(_, usage)| usage)
}

/// The stored usage of the journal of this process; fails while the index is behind.
pub(crate) fn stored(directory: &Path, live: &LiveIndex) -> io::Result<StoredUsage> {
    let stretches = live.stretches();
    let stored = lookup::stored_usage(directory).map_err(io::Error::other)?;
    let is_there = |segment: &Segment| {
        segment.number <= stored.covered.segment || stretches.iter().any(|live| live.segment == segment.number)
    };
    // A segment that began since is empty in this view.
    let last = stretches.last().map_or(0, |last| last.segment);
    let missing = segment::list(directory)?.into_iter().find(|one| one.number <= last && !is_there(one));
    match missing {
        Some(segment) => Err(io::Error::other(format!(
            "its index is being built, and has not come to segment {} yet; try again in a minute",
            segment.number
        ))),
        None => Ok(stored),
    }
}

impl RangeRead<'_> {
    /// The usage of an organization, with at most `top` keys and routes.
    pub(crate) fn of_org(self, org: OrgId, recent: RecentUsage, top: usize) -> io::Result<OrgUsage> {
        let first_hour = self.range.first_hour(self.now);
        let mut periods = self.range.empty(self.now);
        let mut routes: FxHashMap<Option<RouteName>, UsageSums> = FxHashMap::default();
        let mut add = |route: Option<RouteName>, hour: u64, sums: &UsageSums| {
            if let Some(period) = self.range.period_of(&mut periods, hour) {
                period.add(sums);
                routes.entry(route).or_default().add(sums);
            }
        };
        self.stored.for_each_route(org, first_hour, &mut add).map_err(io::Error::other)?;
        recent.routes.iter().for_each(|(route, hour, sums)| add(*route, *hour, sums));
        let routes = busiest(routes.into_iter().collect(), top, |(_, sums)| (sums.requests, sums.refusals));
        let routes = routes.into_iter().map(|(route, sums)| (route.map(|route| route.as_str().to_owned()), sums));
        let keys = self.busiest_keys((org, first_hour), recent.keys, top)?;
        Ok(OrgUsage { series: self.series(periods), keys, routes: routes.collect() })
    }

    /// The usage of a key.
    pub(crate) fn of_key(self, org: OrgId, key: KeyId, recent: &[UsageCounts]) -> io::Result<UsageSeries> {
        let first_hour = self.range.first_hour(self.now);
        let stored = self.stored.load(org, &[key].into_iter().collect(), first_hour).map_err(io::Error::other)?;
        let mut periods = self.range.empty(self.now);
        let of_key = |counts: &UsageCounts| counts.keys.get(&(org, Some(key))).cloned();
        for (hour, sums) in [&stored].into_iter().chain(recent).filter_map(of_key).flat_map(|usage| usage.hours) {
            if let Some(period) = self.range.period_of(&mut periods, hour) {
                period.add(&sums);
            }
        }
        Ok(self.series(periods))
    }

    fn series(&self, periods: Vec<PeriodUsage>) -> UsageSeries {
        let complete_from = Some(self.stored.since).filter(|since| *since > self.range.start(self.now));
        UsageSeries { periods, complete_from }
    }

    /// The busiest keys, part by part: the sums of one part are in memory at a time.
    fn busiest_keys(
        &self,
        (org, first_hour): (OrgId, u64),
        mut recent: Vec<RecentKey>,
        top: usize,
    ) -> io::Result<Vec<BusyKey>> {
        recent.sort_unstable_by_key(|(key, _)| StoredUsage::part_of(*key));
        let mut found: Vec<BusyKey> = Vec::new();
        let mut recent = recent.into_iter().peekable();
        for part in StoredUsage::parts() {
            self.stop.check()?;
            let mut keys: FxHashMap<u128, [u64; 2]> = FxHashMap::default();
            let mut add = |key: &[u8], [requests, refusals]: [u64; 2]| {
                let sums = keys.entry(number_of(key)).or_default();
                *sums = [sums[0].saturating_add(requests), sums[1].saturating_add(refusals)];
            };
            self.stored.for_each_key((org, part, first_hour), &mut add).map_err(io::Error::other)?;
            while let Some((key, counts)) = recent.next_if(|(key, _)| StoredUsage::part_of(*key) == part) {
                add(key.as_ref().map_or(&[], |key| &key.as_bytes()[..]), counts);
            }
            let of_part = busiest(keys.into_iter().collect(), top, |(_, [requests, refusals])| (*requests, *refusals));
            found.extend(of_part.into_iter().map(|(number, [requests, refusals])| {
                let bytes = number.to_le_bytes();
                let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
                BusyKey { key: StoredUsage::key_of(&bytes[..length]), requests, refusals }
            }));
            found = busiest(found, top, |busy| (busy.requests, busy.refusals));
        }
        Ok(found)
    }
}

/// The bytes of the id of a key as a number: it is hashed and compared faster.
fn number_of(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(KeyId::LENGTH);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_le_bytes(bytes)
}

/// The subjects with most requests, admitted and refused, busiest first.
fn busiest<T>(mut all: Vec<T>, top: usize, counts: impl Fn(&T) -> (u64, u64)) -> Vec<T> {
    let rank = |subject: &T| {
        let (requests, refusals) = counts(subject);
        Reverse(requests.saturating_add(refusals))
    };
    all.retain(|subject| rank(subject) < Reverse(0));
    if all.len() > top && top > 0 {
        all.select_nth_unstable_by_key(top - 1, rank);
    }
    all.truncate(top);
    all.sort_by_key(rank);
    all
}
