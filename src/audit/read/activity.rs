//! What some keys of an organization did lately: requests and refusals by the hour, and the last use of each.
//!
//! - The index has the counts of what it covers, the rest of the journal is read: the answer is exact, and up to date.
//!   While the rest is large, because the index is being made, there is no answer: it would be one of minutes.
//! - A request is a use that was admitted, a refusal one that was not. Sessions and changes by management are neither.
//! - Hours and last uses outlive the segments they were read from, until the index is made anew.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use uuid::Uuid;

use crate::audit::format::event::{Glance, UseEvent};
use crate::audit::format::line::{self, Kind};
use crate::audit::format::record::Outcome;
use crate::audit::format::segment::{self, Block};
use crate::audit::index;
use crate::audit::index::usage_counts::{self, Counts, HOUR, Last, Tally};
use crate::audit::read::join;
use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::KeyId;

/// How many hours are told apart: a day.
pub const ACTIVITY_HOURS: usize = 24;
/// Bytes beyond what the index covers that are read for an answer, at most: some tenths of a second. An index that is
/// kept up has a fraction of a megabyte beyond it.
const LONGEST_TAIL: u64 = 256 << 20;

/// What a key did lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyActivity {
    /// The hour that is going on, last, and those before it, oldest first.
    pub hours: [HourlyActivity; ACTIVITY_HOURS],
    /// Its last use that was admitted, however long ago, as far as the journal reaches.
    pub last: Option<LastUse>,
}

/// How often a key was used within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourlyActivity {
    /// When it began: a whole hour, UTC.
    pub start: Micros,
    /// Uses that were admitted.
    pub requests: u64,
    /// Uses that were refused; see [`Outcome::is_refusal`].
    pub refusals: u64,
}

/// The last use of a key that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// The id of its record and its request.
    pub id: Uuid,
    /// When it was decided.
    pub time: Micros,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The client's user agent, capped and escaped.
    pub user_agent: Option<String>,
    /// The route's name, else `METHOD /path`.
    pub action: String,
    /// How it ended; [`Outcome::InProgress`] when it has not.
    pub outcome: Outcome,
    /// The status that was sent, if one was by now.
    pub status: Option<u16>,
}

impl KeyActivity {
    /// None at all, in the hours from one on.
    fn none(first: u64) -> Self {
        let hour = |n: usize| HourlyActivity {
            start: Micros((first + n as u64).saturating_mul(HOUR)),
            ..HourlyActivity::default()
        };
        Self { hours: std::array::from_fn(hour), last: None }
    }
}

/// Whose lines are counted.
struct Wanted {
    org: OrgId,
    keys: FxHashSet<KeyId>,
}

impl Wanted {
    fn has(&self, glance: &Glance) -> bool {
        glance.org_id == Some(self.org) && glance.key_id.is_some_and(|key| self.keys.contains(&key))
    }
}

/// The activity of these keys of an organization, in the hour of `now` and those before it.
pub(crate) fn of(directory: &Path, org: OrgId, keys: &[KeyId], now: Micros) -> io::Result<HashMap<KeyId, KeyActivity>> {
    let wanted = Wanted { org, keys: keys.iter().copied().collect() };
    let first = (usage_counts::hour(now) + 1).saturating_sub(ACTIVITY_HOURS as u64);
    let counted = index::counted(directory, org, &wanted.keys, first).unwrap_or_else(|error| {
        tracing::debug!(%error, "the audit journal is counted without its index");
        None
    });
    // Listed after the index was read, so that the segments reach at least as far.
    let segments = segment::list(directory)?;
    let unindexed = || (Tally::new(first, FxHashMap::default()), (0, 0));
    let (mut tally, covered) = counted.filter(|(_, point)| segment::reach(&segments, *point)).unwrap_or_else(unindexed);
    let tail = segment::beyond(&segments, covered).map(|block| block.end - block.start).sum::<u64>();
    if tail > LONGEST_TAIL {
        let megabytes = tail >> 20;
        let what =
            format!("its index is being made, and {megabytes} MiB are still to be indexed; try again in a minute");
        return Err(io::Error::other(what));
    }
    let mut piece = Vec::new();
    for block in segment::beyond(&segments, covered) {
        count(directory, block, &wanted, &mut piece, &mut tally)?;
    }
    Ok(by_key(tally, &wanted.keys, first))
}

/// Counts the uses of the wanted keys in a block.
fn count(directory: &Path, block: Block, wanted: &Wanted, piece: &mut Vec<u8>, tally: &mut Tally) -> io::Result<()> {
    segment::read(directory, block, piece)?;
    for (_, line) in line::lines(piece) {
        match line::kind(line) {
            Some(Kind::Use | Kind::Record) => {
                if let Some(glance) = Glance::at(line).filter(|glance| wanted.has(glance)) {
                    tally.begun(&glance, line);
                }
            }
            Some(Kind::Outcome) => tally.ended(line),
            _ => {}
        }
    }
    Ok(())
}

/// What each of these keys did; for those that did nothing, that.
fn by_key(tally: Tally, keys: &FxHashSet<KeyId>, first: u64) -> HashMap<KeyId, KeyActivity> {
    let mut keys: HashMap<KeyId, KeyActivity> = keys.iter().map(|key| (*key, KeyActivity::none(first))).collect();
    for (((_, key), hour), Counts { requests, refusals }) in tally.hours {
        let activity = keys.entry(key).or_insert_with(|| KeyActivity::none(first));
        let n = usize::try_from(hour.saturating_sub(first)).unwrap_or(usize::MAX);
        // What a clock that runs ahead has recorded is of no hour yet.
        if let Some(hour) = activity.hours.get_mut(n) {
            *hour = HourlyActivity { requests, refusals, ..*hour };
        }
    }
    for ((_, key), last) in tally.last {
        keys.entry(key).or_insert_with(|| KeyActivity::none(first)).last = last_use(&last);
    }
    keys
}

fn last_use(last: &Last) -> Option<LastUse> {
    let begun: UseEvent<'_> = serde_json::from_slice(&last.begun).ok()?;
    let ended = last.ended.as_deref().and_then(join::outcome);
    Some(LastUse {
        id: begun.id,
        time: begun.time,
        ip: begun.ip,
        user_agent: begun.user_agent.map(Into::into),
        action: begun.action.into(),
        outcome: ended.map(|end| end.outcome).or(begun.outcome).unwrap_or(Outcome::InProgress),
        status: ended.map_or(begun.status, |end| end.status),
    })
}
