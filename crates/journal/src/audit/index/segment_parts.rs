//! Rows of a segment's parts in the database of the index.
//!
//! - A look-up of an id reads the row of the segment and one page of the ids: not the rest.
//! - SQLite has no checksums, and a changed byte could hide records. So each row has one, over its place and its
//!   content, and a page has the place of the page behind it: whatever a look-up is led to, it finds the page of the
//!   hash, or damage. A reader reads the segment then.
//! - An id takes six bytes, about: three of the hash, and one for each part beside two.
//!
//! A page has up to 256 ids in the order of their hashes: of each the difference to the one before, then a byte that
//! tells which of the eight bytes of the set are not zero, then these.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

use rusqlite::{Connection, Error, OptionalExtension as _, Row, params, types::Type};

use super::members::{self, Members, PartTimes};
use super::segment_index::SegmentIndex;
use crate::audit::filter::Filter;
use crate::audit::format::pack::{Input, put};
use crate::audit::format::segment::Block;

/// Ids of a page: some 1.5 KiB, of which a page of SQLite has two.
const PAGE: usize = 256;
/// End of the last page of a segment: all hashes are below it.
const END: u64 = 1 << 32;

/// The row of a segment.
#[derive(Debug)]
pub(crate) struct SegmentParts {
    segment: u64,
    /// Length of the segment.
    pub(crate) length: u64,
    /// Length of a part.
    pub(crate) part: u64,
    times: BTreeMap<u32, PartTimes>,
}

/// A page of ids.
struct Page {
    /// The number of the segment, then 32 bits of the hash from which on the page has ids.
    place: u64,
    /// The hash at which the next page begins.
    end: u64,
    sets: Vec<u8>,
}

/// Stores the parts of a segment in place of those that were stored.
pub(crate) fn store(database: &Connection, index: &SegmentIndex) -> rusqlite::Result<()> {
    remove(database, index.segment..index.segment + 1)?;
    let Members { part, sets, times } = &index.members;
    let mut insert = database.prepare_cached("INSERT INTO part (place, next, sets, crc) VALUES (?1, ?2, ?3, ?4)")?;
    let mut ids: Vec<(u32, u64)> = sets.iter().map(|(hash, set)| (*hash, *set)).collect();
    ids.sort_unstable();
    // The first page begins at 0, and is there without any id.
    let firsts = ids.chunks(PAGE).skip(1).map(|ids| u64::from(ids[0].0));
    let bounds: Vec<u64> = iter::once(0).chain(firsts).chain([END]).collect();
    for (number, bounds) in bounds.windows(2).enumerate() {
        let ids = ids.chunks(PAGE).nth(number).unwrap_or_default();
        let page = Page { place: index.segment << 32 | bounds[0], end: bounds[1], sets: pack(bounds[0], ids) };
        insert.execute(params![page.place.cast_signed(), page.end.cast_signed(), page.sets, page.crc()])?;
    }
    let times =
        times.iter().flat_map(|(part, PartTimes { began, ids })| [u64::from(*part), began.0, began.1, ids.0, ids.1]);
    let times: Vec<u8> = times.flat_map(u64::to_le_bytes).collect();
    let numbers = [index.segment, index.length, *part];
    let [segment, length, part] = numbers.map(u64::cast_signed);
    let mut insert = database
        .prepare_cached("INSERT INTO segment (number, length, part, times, crc) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    insert.execute(params![segment, length, part, times, checksum(&numbers, &times)]).map(drop)
}

/// Removes the parts of these segments.
pub(crate) fn remove(database: &Connection, segments: Range<u64>) -> rusqlite::Result<()> {
    let range = [segments.start, segments.end];
    let mut delete = database.prepare_cached("DELETE FROM part WHERE place >= ?1 AND place < ?2")?;
    delete.execute(range.map(|number| (number << 32).cast_signed()))?;
    let mut delete = database.prepare_cached("DELETE FROM segment WHERE number >= ?1 AND number < ?2")?;
    delete.execute(range.map(u64::cast_signed)).map(drop)
}

impl SegmentParts {
    /// Loads the row of a segment; `None` when it has none.
    ///
    /// # Errors
    /// [`damaged`] when it is damaged.
    pub(crate) fn load(database: &Connection, segment: u64) -> rusqlite::Result<Option<Self>> {
        let mut find = database.prepare_cached("SELECT length, part, times, crc FROM segment WHERE number = ?1")?;
        let parse = |row: &Row<'_>| {
            let (length, part) = (number(row, 0)?, number(row, 1)?);
            let times: Vec<u8> = row.get(2)?;
            if checksum(&[segment, length, part], &times) != row.get::<_, u32>(3)? {
                return Err(damaged());
            }
            Ok(Self { segment, length, part, times: parse_times(&times) })
        };
        find.query_row([segment.cast_signed()], parse).optional()
    }

    /// The blocks that may hold records for a filter, oldest first.
    pub(crate) fn candidates(&self, database: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Block>> {
        let place = (self.segment, self.length, self.part.max(1));
        members::candidates(place, filter, &self.times, |hash| self.find_member(database, hash))
    }

    /// Reads and checks every page.
    pub(crate) fn members(&self, database: &Connection) -> rusqlite::Result<Members> {
        let mut members = Members { times: self.times.clone(), ..Members::new(self.part) };
        let mut next = 0;
        while next < END {
            let page = self.page_of(database, next)?;
            members.sets.extend(page.unpack()?);
            next = page.end;
        }
        Ok(members)
    }

    /// The set of parts of a hash.
    fn find_member(&self, database: &Connection, hash: u32) -> rusqlite::Result<u64> {
        let ids = self.page_of(database, hash.into())?.unpack()?;
        Ok(ids.binary_search_by_key(&hash, |(hash, _)| *hash).map_or(0, |at| ids[at].1))
    }

    /// The page that has this hash, if it is there at all.
    fn page_of(&self, database: &Connection, hash: u64) -> rusqlite::Result<Page> {
        let mut find = database
            .prepare_cached("SELECT place, next, sets, crc FROM part WHERE place <= ?1 ORDER BY place DESC LIMIT 1")?;
        let wanted = self.segment << 32 | hash;
        let parse = |row: &Row<'_>| {
            let page = Page { place: number(row, 0)?, end: number(row, 1)?, sets: row.get(2)? };
            let is_found = page.place >> 32 == self.segment && page.place <= wanted && hash < page.end;
            if is_found && page.crc() == row.get::<_, u32>(3)? { Ok(page) } else { Err(damaged()) }
        };
        find.query_row([wanted.cast_signed()], parse).optional()?.ok_or_else(damaged)
    }
}

impl Page {
    fn crc(&self) -> u32 {
        checksum(&[self.place, self.end], &self.sets)
    }

    fn unpack(&self) -> rusqlite::Result<Vec<(u32, u64)>> {
        unpack(self.place as u32, &self.sets).ok_or_else(damaged)
    }
}

fn pack(first: u64, ids: &[(u32, u64)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ids.len() * 6);
    let mut before = first as u32;
    for (hash, set) in ids {
        put(&mut out, u64::from(hash - before));
        before = *hash;
        let bytes = set.to_le_bytes();
        out.push((0..8).fold(0, |mask, n| mask | u8::from(bytes[n] != 0) << n));
        out.extend(bytes.into_iter().filter(|byte| *byte != 0));
    }
    out
}

/// The ids of a page; `None` when they are not whole.
fn unpack(first: u32, sets: &[u8]) -> Option<Vec<(u32, u64)>> {
    let mut ids = Vec::with_capacity(PAGE);
    let mut input = Input(sets);
    let mut hash = first;
    while !input.0.is_empty() {
        hash = hash.checked_add(u32::try_from(input.number()?).ok()?)?;
        let mask = input.byte()?;
        let mut set = [0; 8];
        for n in (0..8).filter(|n| mask & 1 << n != 0) {
            set[n] = input.byte()?;
        }
        ids.push((hash, u64::from_le_bytes(set)));
    }
    Some(ids)
}

fn parse_times(bytes: &[u8]) -> BTreeMap<u32, PartTimes> {
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let time = |&[part, earliest, latest, first, last]: &[u64; 5]| {
        (part.min(63) as u32, PartTimes { began: (earliest, latest), ids: (first, last) })
    };
    numbers.as_chunks().0.iter().map(time).collect()
}

fn checksum(numbers: &[u64], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    numbers.iter().for_each(|number| hasher.update(&number.to_le_bytes()));
    hasher.update(content);
    hasher.finalize()
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// The error of a row with another checksum.
fn damaged() -> Error {
    Error::FromSqlConversionFailure(0, Type::Blob, "its checksum is wrong".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustc_hash::FxHashMap;

    use super::*;
    use crate::audit::index::database;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn ids_are_found_as_they_were_stored(sets in prop::collection::hash_map(any::<u32>(), any::<u64>(), 0..700)) {
            let directory = tempfile::tempdir().unwrap();
            let database = database::create(&directory.path().join(database::FILE)).unwrap();
            // Neighbours are not mistaken for it.
            for segment in [6, 8, 7, 7] {
                let mut index = SegmentIndex::new(segment, 1 << 18, FxHashMap::default());
                index.members.sets = sets.iter().map(|(hash, set)| (*hash, set ^ segment ^ 7)).collect();
                index.members.times.insert(3, PartTimes { began: (5, 9), ids: (4, 7) });
                store(&database, &index).unwrap();
            }
            let parts = SegmentParts::load(&database, 7).unwrap().expect("it was stored");
            for (hash, set) in &sets {
                prop_assert_eq!(parts.find_member(&database, *hash).unwrap(), *set);
                let next = hash.wrapping_add(1);
                prop_assert_eq!(parts.find_member(&database, next).unwrap(), sets.get(&next).copied().unwrap_or(0));
            }
            let members = parts.members(&database).unwrap();
            prop_assert!(members.sets.into_iter().collect::<std::collections::HashMap<_, _>>() == sets);
            prop_assert_eq!(members.times, BTreeMap::from([(3, PartTimes { began: (5, 9), ids: (4, 7) })]));
            remove(&database, 0..8).unwrap();
            prop_assert!(SegmentParts::load(&database, 7).unwrap().is_none() && parts.members(&database).is_err());
            prop_assert!(SegmentParts::load(&database, 8).unwrap().is_some());
        }
    }
}
