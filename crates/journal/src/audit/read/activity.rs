//! Activity of keys: requests and refusals by the hour, the last use and the last attempt of each key.
//!
//! - The index has the counts of what it covers, up to the last line in the process that writes the journal; the rest
//!   is read, so the result is exact and current. While the rest is too large, because the index is being built, the
//!   call fails instead of taking minutes.
//! - A request is an admitted use, a refusal a refused one. Uses by sessions and changes by management are neither.
//! - Counts and last uses outlive the segments that they were read from, until the index is rebuilt.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::stop::StopSignal;
use crate::audit::format::decode;
use crate::audit::format::line;
use crate::audit::format::lines_at::LinesAt;
use crate::audit::format::record::{Outcome, Record};
use crate::audit::format::segment::{self, Block, Point, Segment};
use crate::audit::format::source::{self, Piece};
use crate::audit::index::live_index::{LiveIndex, Stretch};
use crate::audit::index::segment_usage::{OpenPlace, SegmentUsage};
use crate::audit::index::usage_counts::{self, HOUR, KeyUsage, LineRef, UsageCounts};
use crate::audit::index::{IndexedEvent, IndexedUse, lookup};
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;

/// Number of hours whose counts are reported: a day.
pub const ACTIVITY_HOURS: usize = 24;
/// Bytes after the end of the index that are read at most: some tenths of a second. Behind an index that is up to date
/// there is a fraction of a megabyte.
const MAX_UNINDEXED: u64 = 256 << 20;

/// Recent activity of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyActivity {
    /// Counts by the hour, oldest first; the last hour is the current one.
    pub hours: [HourlyActivity; ACTIVITY_HOURS],
    /// The last admitted use, however long ago, as far back as the journal was indexed.
    pub last: Option<LastUse>,
    /// The last attempt, admitted or refused, as far back. It is `last` when no later one was refused.
    pub last_attempt: Option<LastUse>,
}

/// Number of uses of a key within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourlyActivity {
    /// Beginning of the hour: a whole hour, UTC.
    #[serde(with = "clock::rfc3339")]
    pub start: Micros,
    /// Admitted uses.
    pub requests: u64,
    /// Refused uses; see [`Outcome::is_refusal`].
    pub refusals: u64,
}

/// The last admitted use of a key, or the last attempt to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastUse {
    /// Id of the record and of its request.
    pub id: Uuid,
    /// Time of the decision.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The client's user agent, capped and escaped.
    pub user_agent: Option<String>,
    /// The route's name, else `METHOD /path`.
    pub action: String,
    /// The outcome; [`Outcome::InProgress`] while the use has not ended.
    pub outcome: Outcome,
    /// Status code of the response, once one was sent.
    pub status: Option<u16>,
}

impl KeyActivity {
    /// No activity, in the hours from `first_hour` on.
    pub(crate) fn empty(first_hour: u64) -> Self {
        let hour = |n: usize| HourlyActivity {
            start: Micros((first_hour + n as u64).saturating_mul(HOUR)),
            ..HourlyActivity::default()
        };
        Self { hours: std::array::from_fn(hour), last: None, last_attempt: None }
    }

    /// Adds requests and refusals in the hour with this number. Uses that were recorded by a clock ahead of `now` fall
    /// into no reported hour, as do those of older hours.
    pub(crate) fn add(&mut self, number: u64, [requests, refusals]: [u64; 2]) {
        let start = Micros(number.saturating_mul(HOUR));
        if let Some(hour) = self.hours.iter_mut().find(|hour| hour.start == start) {
            hour.requests = hour.requests.saturating_add(requests);
            hour.refusals = hour.refusals.saturating_add(refusals);
        }
    }

    /// Sets the last use and the last attempt: the last refused use, when that is later.
    pub(crate) fn set_last(&mut self, admitted: Option<LastUse>, refused: Option<LastUse>) {
        let time = |last: &Option<LastUse>| last.as_ref().map(|last| last.time);
        self.last_attempt = if time(&refused) > time(&admitted) { refused } else { admitted.clone() };
        self.last = admitted;
    }
}

impl LastUse {
    pub(crate) fn from_record(record: &Record) -> Self {
        Self {
            id: record.id,
            // A record of several refusals stands for attempts up to the last one.
            time: record.last(),
            ip: record.ip,
            user_agent: record.user_agent.clone(),
            action: record.action.clone(),
            outcome: record.outcome,
            status: record.status,
        }
    }
}

/// The keys whose activity was requested.
struct RequestedKeys {
    org: OrgId,
    keys: FxHashSet<KeyId>,
}

impl RequestedKeys {
    fn contains(&self, indexed: &IndexedUse) -> bool {
        indexed.org_id == Some(self.org) && indexed.key_id.is_some_and(|key| self.keys.contains(&key))
    }
}

/// Reads the activity of some keys of an organization, in the hour of `now` and the 23 hours before. `live` is the
/// index in memory of the process that writes the journal.
pub(crate) fn read_activity(
    directory: &Path,
    live: Option<&LiveIndex>,
    (org, keys): (OrgId, &[KeyId]),
    now: Micros,
    stop: &StopSignal,
) -> io::Result<HashMap<KeyId, KeyActivity>> {
    let requested = RequestedKeys { org, keys: keys.iter().copied().collect() };
    let first_hour = (usage_counts::hour_of(now) + 1).saturating_sub(ACTIVITY_HOURS as u64);
    let mut counts = count_usage(directory, live, &requested, first_hour, stop)?;
    let mut lines = LinesAt::new(directory.to_owned());
    counts.store_lines(|point| {
        stop.check()?;
        Ok::<_, io::Error>(lines.read(point)?.map(<[u8]>::to_vec))
    })?;
    Ok(group_by_key(counts, &requested.keys, first_hour))
}

/// Counts the usage of keys: what is stored, then segment by segment, from memory or by reading.
fn count_usage(
    directory: &Path,
    live: Option<&LiveIndex>,
    requested: &RequestedKeys,
    first_hour: u64,
    stop: &StopSignal,
) -> io::Result<UsageCounts> {
    let RequestedKeys { org, keys } = requested;
    // In this order, what leaves one of them is in the one that is read next.
    let in_memory = live.map(|live| live.usage(*org, keys)).unwrap_or_default();
    let stored = lookup::load_usage(directory, *org, keys, first_hour).unwrap_or_else(|error| {
        tracing::debug!(%error, "no index of the audit journal can be read; counting its segments");
        None
    });
    let segments = segment::list(directory)?;
    // An index that reaches further belongs to another journal.
    let fitting = stored.filter(|(_, point)| segment::covers(&segments, *point));
    let (mut counts, covered) = fitting.unwrap_or_else(|| (UsageCounts::default(), Point::START));
    let parts = indexed_parts(in_memory, &segments, covered);
    check_unindexed(parts.iter().map(|(segment, _, end)| segment.length.saturating_sub(*end)).sum())?;
    let mut piece = Piece::default();
    for (segment, part, end) in parts {
        part.into_iter().for_each(|part| counts.extend(part));
        let open = counts.open_last_uses().into_iter().map(|(id, owner)| (id, OpenPlace::of_last(owner)));
        let mut usage = SegmentUsage::new(segment.number, open.collect());
        for block in segment::blocks(segment.number, end, segment.length) {
            stop.check()?;
            count_block(directory, block, requested, &mut piece, &mut usage)?;
        }
        counts.extend(usage.select(*org, keys));
    }
    Ok(counts)
}

/// A segment, the usage in it as far as it is in memory, and the end of that part.
type IndexedPart = (Segment, Option<UsageCounts>, u64);

/// The segments after a point, with what is in memory of each.
fn indexed_parts(mut in_memory: Vec<(Stretch, UsageCounts)>, segments: &[Segment], covered: Point) -> Vec<IndexedPart> {
    let part_of = |segment: &Segment| {
        let from = if segment.number == covered.segment { covered.offset } else { 0 };
        let place = in_memory.iter().position(|(at, _)| (at.segment, at.from) == (segment.number, from));
        let part = place.map(|place| in_memory.swap_remove(place));
        let end = part.as_ref().map_or(from, |(stretch, _)| stretch.to);
        (*segment, part.map(|(_, counts)| counts), end)
    };
    segments.iter().filter(|segment| segment.number >= covered.segment).map(part_of).collect()
}

/// Fails when too much of the journal is not indexed.
fn check_unindexed(unindexed: u64) -> io::Result<()> {
    if unindexed > MAX_UNINDEXED {
        let megabytes = unindexed >> 20;
        let message =
            format!("its index is being built, and {megabytes} MiB are still to be indexed; try again in a minute");
        return Err(io::Error::other(message));
    }
    Ok(())
}

/// Counts the uses of the requested keys in a block.
fn count_block(
    directory: &Path,
    block: Block,
    requested: &RequestedKeys,
    piece: &mut Piece,
    usage: &mut SegmentUsage,
) -> io::Result<()> {
    let start = source::read_block(directory, block, piece)?;
    for (at, line) in line::split_lines(piece) {
        let is_requested = |event: &IndexedEvent| match event {
            IndexedEvent::Use(used) => requested.contains(used),
            IndexedEvent::Outcome(_) => true,
            IndexedEvent::Carried(_) => false,
        };
        if let Some(event) = IndexedEvent::from_line(line).ok().flatten().filter(is_requested) {
            usage.count(&event, start + at as u64);
        }
    }
    Ok(())
}

/// Groups the counts by key. Keys without any use have an empty activity.
fn group_by_key(counts: UsageCounts, keys: &FxHashSet<KeyId>, first_hour: u64) -> HashMap<KeyId, KeyActivity> {
    let mut found: HashMap<KeyId, KeyActivity> =
        keys.iter().map(|key| (*key, KeyActivity::empty(first_hour))).collect();
    for ((_, key), usage) in counts.keys {
        found.extend(key.map(|key| (key, key_activity(usage, first_hour))));
    }
    found
}

fn key_activity(usage: KeyUsage, first_hour: u64) -> KeyActivity {
    let mut activity = KeyActivity::empty(first_hour);
    for (hour, sums) in usage.hours {
        activity.add(hour, [sums.requests, sums.refusals]);
    }
    let admitted = usage.last.and_then(|last| parse_last_use(&last.begun, last.ended.as_ref()));
    let refused = usage.refusal.and_then(|line| parse_last_use(&line, None));
    activity.set_last(admitted, refused);
    activity
}

fn parse_last_use(begun: &LineRef, ended: Option<&LineRef>) -> Option<LastUse> {
    let begun = decode::use_event(begun.stored()?)?;
    let ended = ended.and_then(LineRef::stored).and_then(decode::verified_outcome);
    // No reader of a last use asks for its gateway.
    Some(LastUse::from_record(&begun.into_record(ended.as_ref(), "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_several_refusals_names_the_last() {
        let time = |several: &str| {
            let id = Uuid::nil();
            let request = r#""auth_method":"api-key","action":"a","method":"GET","path":"/""#;
            let line = format!(r#"{{"e":"record","id":"{id}","time":1,{request}{several}}}"#);
            parse_last_use(&LineRef::Stored(line.into_bytes()), None).unwrap().time
        };
        assert_eq!(time(r#","count":9,"last":5"#), Micros(5));
        assert_eq!(time(""), Micros(1));
    }
}
