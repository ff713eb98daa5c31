//! The parts of a segment in which ids occur: of keys, users and organizations, and when the uses in each part began.
//!
//! - A segment has up to 64 parts of equal length, multiples of [`BLOCK`]: the set of the parts of an id is one number.
//! - Ids are hashed to 32 bits. Two with the same hash make a reader read parts in vain, nothing else.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::indexed_use::IndexedUse;
use crate::audit::filter::Filter;
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
    /// When the first and the last use of each part began. Parts without uses may be missing.
    pub(crate) times: BTreeMap<u32, (u64, u64)>,
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
        let Micros(time) = used.time;
        let (earliest, latest) = self.times.entry(part).or_insert((time, time));
        *earliest = time.min(*earliest);
        *latest = time.max(*latest);
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
    times: &BTreeMap<u32, (u64, u64)>,
    mut set: impl FnMut(u32) -> Result<u64, E>,
) -> Result<Vec<Block>, E> {
    let in_time = |(_, (earliest, latest)): &(&u32, &(u64, u64))| {
        filter.since.is_none_or(|since| *latest >= since.0) && filter.until.is_none_or(|until| *earliest < until.0)
    };
    let mut parts = times.iter().filter(in_time).fold(0, |parts, (part, _)| parts | 1_u64 << part);
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
    use super::*;

    #[test]
    fn parts_cover_every_offset() {
        assert_eq!(part_length(1 << 20), BLOCK);
        assert!(part_length(64 << 20) * PARTS > 64 << 20);
        for size in [1 << 20, 64 << 20, 1 << 34] {
            let part = part_length(size);
            assert_eq!((part_at(part, 0), part_at(part, part), part_at(part, part * 99)), (0, 1, 63), "{size}");
            let times = BTreeMap::from([(0, (5, 9)), (63, (20, 30))]);
            let all = candidates((7, part * 99, part), &Filter::default(), &times, |_| Ok::<_, ()>(0)).unwrap();
            assert_eq!((all[0].start, all.last().unwrap().end), (0, part * 99));
            let late = Filter { since: Some(Micros(10)), ..Filter::default() };
            let late = candidates((7, part * 99, part), &late, &times, |_| Ok::<_, ()>(0)).unwrap();
            assert_eq!(late[0].start, 63 * part);
        }
    }
}
