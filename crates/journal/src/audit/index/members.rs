//! The parts of a segment in which ids occur: of keys, users and organizations, and when the uses in each part began.
//!
//! - The id of a request is a UUID of version 7 (RFC 9562, section 5.7), which begins with a time. The first and the
//!   last of these are kept for each part: where the clock was set back, they are not the times of its uses.
//! - A segment has up to 64 parts of equal length, multiples of [`BLOCK`]: the set of the parts of an id is one number.
//! - Ids are hashed to 32 bits. Two with the same hash make a reader read parts in vain, nothing else.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::indexed_use::IndexedUse;
use crate::audit::filter::Filter;
use crate::audit::format::id_text;
use crate::audit::format::segment::{self, BLOCK, Block};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;

/// Parts of a segment; the last one has what is behind it, too.
const PARTS: u64 = 64;

/// The parts of a segment in which ids occur.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// Length of a part in bytes.
    pub(crate) part: u64,
    /// The set of parts of each id, by its hash.
    pub(crate) sets: FxHashMap<u32, u64>,
    /// The times of each part. Parts without uses may be missing.
    pub(crate) times: BTreeMap<u32, PartTimes>,
}

/// The times of the uses of a part, in microseconds: the first, and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartTimes {
    /// At which they began.
    pub(crate) began: (u64, u64),
    /// In their ids; any time, where one has none.
    pub(crate) ids: (u64, u64),
}

impl PartTimes {
    fn of(used: &IndexedUse) -> Self {
        let Micros(began) = used.time;
        let ids = id_text::time_of(used.id).map_or((0, u64::MAX), |Micros(time)| (time, time));
        Self { began: (began, began), ids }
    }

    fn add(&mut self, other: Self) {
        let join = |one: (u64, u64), other: (u64, u64)| (one.0.min(other.0), one.1.max(other.1));
        self.began = join(self.began, other.began);
        self.ids = join(self.ids, other.ids);
    }

    /// True when the part may hold a record for a filter.
    fn may_match(&self, filter: &Filter) -> bool {
        let Self { began: (earliest, latest), ids: (first, last) } = *self;
        filter.since.is_none_or(|since| latest >= since.0)
            && filter.until.is_none_or(|until| earliest < until.0)
            && filter.id.and_then(id_text::time_of).is_none_or(|time| first <= time.0 && time.0 <= last)
    }
}

/// The length of the parts of segments that are closed at this size.
pub(crate) fn part_length(segment_size: u64) -> u64 {
    segment_size.div_ceil(PARTS - 1).next_multiple_of(BLOCK).max(BLOCK)
}

impl Members {
    pub(crate) fn new(part: u64) -> Self {
        Self { part, sets: FxHashMap::default(), times: BTreeMap::new() }
    }

    /// Adds a use whose line begins at this offset.
    pub(crate) fn add(&mut self, used: &IndexedUse, offset: u64) {
        let part = part_at(self.part, offset);
        let refused = used.is_refused();
        for hash in hashes(used.key_id, used.user_id, used.org_id).into_iter().flatten() {
            *self.sets.entry(hash).or_default() |= 1 << part;
            if refused {
                *self.sets.entry(of_refused(hash)).or_default() |= 1 << part;
            }
        }
        let times = PartTimes::of(used);
        self.times.entry(part).or_insert(times).add(times);
    }
}

fn part_at(part: u64, offset: u64) -> u32 {
    u32::try_from((offset / part).min(PARTS - 1)).expect("it is below 64")
}

/// The blocks of the parts that may hold records for a filter, oldest first, of a segment with this length. `set` looks
/// up the set of parts of a hash.
///
/// # Errors
/// Those of `set`.
pub(crate) fn candidates<E>(
    (segment, length, part): (u64, u64, u64),
    filter: &Filter,
    times: &BTreeMap<u32, PartTimes>,
    mut set: impl FnMut(u32) -> Result<u64, E>,
) -> Result<Vec<Block>, E> {
    let matching = times.iter().filter(|(_, times)| times.may_match(filter));
    let mut parts = matching.fold(0, |parts, (part, _)| parts | 1_u64 << part);
    for hash in hashes(filter.key, filter.user, filter.org).into_iter().flatten() {
        if parts != 0 {
            parts &= set(if filter.refused == Some(true) { of_refused(hash) } else { hash })?;
        }
    }
    let ranges = (0..PARTS).filter(|number| parts & 1 << number != 0).map(|number| {
        let end = if number == PARTS - 1 { length } else { length.min((number + 1) * part) };
        (number * part, end)
    });
    Ok(ranges.flat_map(|(start, end)| segment::blocks(segment, start, end)).collect())
}

/// The hashes of ids. They are kept in files, and must stay as they are.
fn hashes(key: Option<KeyId>, user: Option<UserId>, org: Option<OrgId>) -> [Option<u32>; 3] {
    let halves = |bytes: &[u8; 16]| {
        let (first, second) = bytes.split_at(8);
        [first, second].map(|half| u64::from_le_bytes(half.try_into().expect("it is half of 16 bytes")))
    };
    let of_key = |key: KeyId| {
        let mut bytes = [0; 16];
        bytes[..KeyId::LENGTH].copy_from_slice(key.as_bytes());
        mix(halves(&bytes), 1)
    };
    [key.map(of_key), user.map(|id| mix(halves(id.as_bytes()), 2)), org.map(|id| mix(halves(id.as_bytes()), 3))]
}

/// The hash under which refused uses of an id are found.
fn of_refused(hash: u32) -> u32 {
    mix([hash.into(), 0], 4)
}

fn mix([first, second]: [u64; 2], salt: u64) -> u32 {
    // The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
    let mixed = (first ^ second.rotate_left(29) ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use uuid::{NoContext, Timestamp, Uuid};

    use super::*;
    use crate::audit::format::event::OpenUse;
    use crate::audit::format::record::Use;
    use crate::audit::write::journal::tests::opening;

    #[test]
    fn parts_cover_every_offset() {
        assert_eq!(part_length(1 << 20), BLOCK);
        assert!(part_length(64 << 20) * PARTS > 64 << 20);
        for size in [1 << 20, 64 << 20, 1 << 34] {
            let part = part_length(size);
            assert_eq!((part_at(part, 0), part_at(part, part), part_at(part, part * 99)), (0, 1, 63), "{size}");
            let times = |began, ids| PartTimes { began, ids };
            let times = BTreeMap::from([(0, times((5, 9), (0, u64::MAX))), (63, times((20, 30), (0, u64::MAX)))]);
            let all = candidates((7, part * 99, part), &Filter::default(), &times, |_| Ok::<_, ()>(0)).unwrap();
            assert_eq!((all[0].start, all.last().unwrap().end), (0, part * 99));
            let late = Filter { since: Some(Micros(10)), ..Filter::default() };
            let late = candidates((7, part * 99, part), &late, &times, |_| Ok::<_, ()>(0)).unwrap();
            assert_eq!(late[0].start, 63 * part);
        }
    }

    #[test]
    fn part_of_an_id_has_its_time_whatever_the_clock_did() {
        let id = |millis: u64| {
            let nanos = u32::try_from(millis % 1000).unwrap() * 1_000_000;
            Uuid::new_v7(Timestamp::from_unix(NoContext, millis / 1000, nanos))
        };
        let mut members = Members::new(BLOCK);
        // The clock is set back: ids stay at the last millisecond until it is there again.
        for (part, began, id) in [(0, 5000, id(5000)), (1, 5700, id(5700)), (2, 1400, id(5700))] {
            let used = Use { id, time: Micros(began * 1000), ..opening() };
            members.add(&IndexedUse::from_open(&OpenUse::from_use(&used)), part * BLOCK);
        }
        let parts = |id| {
            let filter = Filter { id: Some(id), ..Filter::default() };
            let found = candidates((7, 3 * BLOCK, BLOCK), &filter, &members.times, |_| Ok::<_, ()>(0)).unwrap();
            found.into_iter().map(|block| block.start / BLOCK).collect::<Vec<_>>()
        };
        assert_eq!([id(5000), id(5700), id(1400)].map(parts), [vec![0], vec![1, 2], vec![]]);
        assert_eq!(parts(Uuid::nil()), [0, 1, 2], "it has no time");
    }
}
