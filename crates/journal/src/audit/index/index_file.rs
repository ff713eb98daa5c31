//! The file of a segment's index, `NNNNNNNNNN.index` beside the segment.
//!
//! - It is derived data: one that is missing, torn or of another length than its segment is built
//!   again from the segment.
//! - It is written under another name and renamed when it is on disk: a crash leaves no part of one.
//! - Every byte is covered by a checksum that is checked before the byte is used: a changed bit makes a reader read the
//!   segment instead, and never leads it past a record.
//! - A look-up of an id reads the tables and one page: the file is not read as a whole.
//! - A row takes six bytes, about: three of the hash, and one for each part beside two.
//!
//! ```text
//! header | times: part, earliest, latest … | pages: first hash and CRC-32, end … | rows: hash, set of parts …
//! ```
//!
//! The numbers of the header and the tables have eight bytes, little-endian. The header ends with the CRC-32 of the
//! tables, and that of itself. The rows are in the order of the hashes, in pages of 256: of each hash the difference to
//! the one before, then a byte that tells which of the eight bytes of the set are not zero, then these.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::members::{self, Members};
use super::segment_index::SegmentIndex;
use crate::audit::filter::Filter;
use crate::audit::format::pack::{Input, put};
use crate::audit::format::segment::Block;
use crate::files;

/// First bytes of the file, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"kgindex3");
/// Numbers in the header: magic, segment, length, part length, times, pages, CRC-32 of the tables, CRC-32 of these.
const HEADER: usize = 8;
/// Bytes of a number.
const NUMBER: u64 = 8;
/// Rows of a page: some 1.5 KiB, which the kernel reads at once.
const PAGE: usize = 256;

/// An index file that is open for reading.
#[derive(Debug)]
pub(crate) struct IndexFile {
    file: File,
    segment: u64,
    /// Length of the segment.
    length: u64,
    part: u64,
    times: BTreeMap<u32, (u64, u64)>,
    pages: Vec<Page>,
    /// Offset of the first page.
    rows_at: u64,
}

/// Place of a page of rows.
#[derive(Clone, Copy, Debug)]
struct Page {
    first: u32,
    crc: u32,
    /// Offset of its end behind the beginning of the first page.
    end: u64,
}

/// Path of the index of a segment.
pub(crate) fn path(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("{segment:010}.index"))
}

/// Writes the index of a closed segment.
pub(crate) fn write(directory: &Path, index: &SegmentIndex) -> io::Result<()> {
    files::replace(&path(directory, index.segment), &encode(index))
}

/// The length of the segment that its index covers; `None` when there is no whole one.
pub(crate) fn indexed_length(directory: &Path, segment: u64) -> Option<u64> {
    IndexFile::open_any(directory, segment).ok()?.map(|opened| opened.length)
}

/// Removes the index of a segment.
pub(crate) fn remove(directory: &Path, segment: u64) {
    let removed = fs::remove_file(path(directory, segment));
    removed.unwrap_or_else(|error| tracing::debug!(%error, segment, "no index of a segment to remove"));
}

fn encode(index: &SegmentIndex) -> Vec<u8> {
    let Members { part, sets, times } = &index.members;
    let mut members: Vec<(u32, u64)> = sets.iter().map(|(hash, set)| (*hash, *set)).collect();
    members.sort_unstable();
    let mut rows = Vec::with_capacity(members.len() * 6);
    let mut pages = Vec::new();
    for page in members.chunks(PAGE) {
        let start = rows.len();
        put_page(&mut rows, page);
        let crc = crc32fast::hash(&rows[start..]);
        pages.extend([u64::from(page[0].0) << 32 | u64::from(crc), rows.len() as u64]);
    }
    let table_of_times = times.iter().flat_map(|(part, (earliest, latest))| [u64::from(*part), *earliest, *latest]);
    let lengths = [times.len() as u64, pages.len() as u64 / 2];
    let tables = to_bytes(table_of_times.chain(pages));
    let header = [MAGIC, index.segment, index.length, *part];
    let mut out = to_bytes(header.into_iter().chain(lengths).chain([u64::from(crc32fast::hash(&tables))]));
    let crc = u64::from(crc32fast::hash(&out));
    out.extend_from_slice(&to_bytes([crc]));
    [tables, rows].iter().for_each(|table| out.extend_from_slice(table));
    out
}

fn put_page(out: &mut Vec<u8>, rows: &[(u32, u64)]) {
    let mut before = rows[0].0;
    for (hash, set) in rows {
        put(out, u64::from(hash - before));
        before = *hash;
        let bytes = set.to_le_bytes();
        out.push((0..8).fold(0, |mask, n| mask | u8::from(bytes[n] != 0) << n));
        out.extend(bytes.into_iter().filter(|byte| *byte != 0));
    }
}

/// Reads the rows of a page; `None` when they are not whole.
fn parse_page(bytes: &[u8], first: u32) -> Option<Vec<(u32, u64)>> {
    let mut rows = Vec::with_capacity(PAGE);
    let mut input = Input(bytes);
    let mut hash = first;
    while !input.0.is_empty() {
        hash = hash.checked_add(u32::try_from(input.number()?).ok()?)?;
        let mask = input.byte()?;
        let mut set = [0; 8];
        for n in (0..8).filter(|n| mask & 1 << n != 0) {
            set[n] = input.byte()?;
        }
        rows.push((hash, u64::from_le_bytes(set)));
    }
    Some(rows)
}

fn to_bytes(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl IndexFile {
    /// Opens the index of a segment of this length. `None` when there is none that fits.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when it is damaged.
    pub(crate) fn open(directory: &Path, segment: u64, length: u64) -> io::Result<Option<Self>> {
        Ok(Self::open_any(directory, segment)?.filter(|opened| opened.length == length))
    }

    /// Opens the index of a segment, of whatever length that is, and checks its header and its small tables.
    /// `None` when there is none.
    pub(crate) fn open_any(directory: &Path, segment: u64) -> io::Result<Option<Self>> {
        let Some(file) = files::if_found(File::open(path(directory, segment)))? else { return Ok(None) };
        let length = file.metadata()?.len();
        if length < HEADER as u64 * NUMBER {
            return Err(damaged("it is torn"));
        }
        let numbers = to_numbers(&read_bytes(&file, 0, HEADER as u64 * NUMBER)?);
        let [magic, number, indexed, part, times, pages, tables_crc, crc] =
            numbers[..].try_into().expect("as many numbers were read");
        let head = to_bytes(numbers[..HEADER - 1].iter().copied());
        if magic != MAGIC {
            return Err(damaged("it is no index of format version 3"));
        }
        if number != segment || u64::from(crc32fast::hash(&head)) != crc {
            return Err(damaged("its header is not that of an index of this segment"));
        }
        let tables = times.saturating_mul(3).saturating_add(pages.saturating_mul(2));
        let rows_at = (HEADER as u64).saturating_add(tables).saturating_mul(NUMBER);
        if rows_at > length {
            return Err(damaged("it is torn"));
        }
        let tables = read_bytes(&file, HEADER as u64 * NUMBER, tables * NUMBER)?;
        if u64::from(crc32fast::hash(&tables)) != tables_crc {
            return Err(damaged("the times of its parts are damaged"));
        }
        let (times, pages) = parse_tables(&tables, times);
        if rows_at + pages.last().map_or(0, |page| page.end) != length {
            return Err(damaged("its length is another one"));
        }
        Ok(Some(Self { file, segment, length: indexed, part, times, pages, rows_at }))
    }

    /// The length of the parts of the segment.
    pub(crate) fn part(&self) -> u64 {
        self.part
    }

    /// Reads and checks every byte.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when it is damaged.
    pub(crate) fn members(&self) -> io::Result<Members> {
        let mut members = Members { times: self.times.clone(), ..Members::new(self.part) };
        for page in 0..self.pages.len() {
            members.sets.extend(self.read_page(page)?);
        }
        Ok(members)
    }

    /// Reads a page of rows, and checks it.
    fn read_page(&self, page: usize) -> io::Result<Vec<(u32, u64)>> {
        let Page { first, crc, end } = self.pages[page];
        let start = page.checked_sub(1).map_or(0, |before| self.pages[before].end);
        let bytes = read_bytes(&self.file, self.rows_at + start, end.saturating_sub(start))?;
        let rows = parse_page(&bytes, first).filter(|_| crc32fast::hash(&bytes) == crc);
        rows.ok_or_else(|| damaged("the members of its parts are damaged"))
    }

    /// The blocks that may hold records for a filter, oldest first.
    pub(crate) fn candidates(&self, filter: &Filter) -> io::Result<Vec<Block>> {
        let place = (self.segment, self.length, self.part.max(1));
        members::candidates(place, filter, &self.times, |hash| self.find_member(hash))
    }

    /// The set of parts of a hash.
    fn find_member(&self, hash: u32) -> io::Result<u64> {
        let Some(page) = self.pages.partition_point(|page| page.first <= hash).checked_sub(1) else { return Ok(0) };
        let rows = self.read_page(page)?;
        Ok(rows.binary_search_by_key(&hash, |(hash, _)| *hash).map_or(0, |at| rows[at].1))
    }
}

/// Parses the tables, of which the first has this many times.
fn parse_tables(tables: &[u8], times: u64) -> (BTreeMap<u32, (u64, u64)>, Vec<Page>) {
    let numbers = to_numbers(tables);
    let (times, pages) = numbers.split_at(usize::try_from(times * 3).unwrap_or(numbers.len()).min(numbers.len()));
    let part = |row: &[u64]| u32::try_from(row[0].min(63)).expect("it is below 64");
    let times = times.chunks_exact(3).map(|row| (part(row), (row[1], row[2]))).collect();
    let page = |row: &[u64]| Page { first: (row[0] >> 32) as u32, crc: row[0] as u32, end: row[1] };
    (times, pages.chunks_exact(2).map(page).collect())
}

fn read_bytes(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn to_numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustc_hash::FxHashMap;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(sets in prop::collection::hash_map(any::<u32>(), any::<u64>(), 0..700)) {
            let directory = tempfile::tempdir().unwrap();
            let mut index = SegmentIndex::new(7, 1 << 18, FxHashMap::default());
            index.members.sets = sets.into_iter().collect();
            index.members.times.insert(3, (5, 9));
            write(directory.path(), &index).unwrap();
            let file = IndexFile::open(directory.path(), 7, 0).unwrap().expect("it was written");
            for (hash, set) in &index.members.sets {
                prop_assert_eq!(file.find_member(*hash).unwrap(), *set);
                let next = hash.wrapping_add(1);
                let expected = index.members.sets.get(&next).copied().unwrap_or(0);
                prop_assert_eq!(file.find_member(next).unwrap(), expected);
            }
            prop_assert!(file.members().unwrap() == index.members);
        }
    }
}
