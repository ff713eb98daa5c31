//! The file of a segment's index, `NNNNNNNNNN.index` beside the segment.
//!
//! - It is derived data: one that is missing, torn or of another length than its segment is built
//!   again from the segment.
//! - It is written under another name and renamed when it is on disk: a crash leaves no part of one.
//! - Every byte is covered by a checksum that is checked before the byte is used: a changed bit makes a reader read the
//!   segment instead, and never leads it past a record.
//! - A look-up of an id is a binary search in the file: the file is not read as a whole.
//!
//! ```text
//! header | times: part, earliest, latest … | checksum of each page | members: hash, set of parts, … | usage of keys
//! ```
//!
//! All numbers are little-endian. The header ends with the CRC-32 of times and page checksums, and that of itself; the
//! members are in pages of 256, with a CRC-32 each; the usage ends with the CRC-32 of itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::indexed_use::KeyOwner;
use super::live_index::Stretch;
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_codec;
use super::usage_counts::UsageCounts;
use crate::audit::filter::Filter;
use crate::audit::format::segment::Block;
use crate::files;

/// First bytes of the file, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"kgindex2");
/// Numbers in the header: magic, segment, length, part length, counted from, times, members, bytes of usage, CRC-32 of
/// times and page checksums, CRC-32 of these.
const HEADER: usize = 10;
/// Bytes of a number.
const NUMBER: u64 = 8;
/// Rows of a page of members: 4 KiB, which the kernel reads at once.
const PAGE: u64 = 256;

/// An index file that is open for reading.
#[derive(Debug)]
pub(crate) struct IndexFile {
    file: File,
    segment: u64,
    /// Length of the segment.
    length: u64,
    part: u64,
    counted_from: u64,
    times: BTreeMap<u32, (u64, u64)>,
    /// The checksum of each page of members.
    pages: Vec<u32>,
    members_at: u64,
    members: u64,
    usage: u64,
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
    let mut members: Vec<[u64; 2]> = index.members.sets.iter().map(|(hash, set)| [*hash, *set]).collect();
    members.sort_unstable();
    let usage = usage_codec::encode(&index.counts);
    let rows = to_bytes(members.iter().flatten().copied());
    let times =
        index.members.times.iter().flat_map(|(part, (earliest, latest))| [u64::from(*part), *earliest, *latest]);
    let pages = rows.chunks((PAGE * 2 * NUMBER) as usize).map(|page| u64::from(crc32fast::hash(page)));
    let tables = to_bytes(times.chain(pages));
    let lengths = [index.members.times.len(), members.len(), usage.len()].map(|length| length as u64);
    let header = [MAGIC, index.segment, index.length, index.members.part, index.counted_from];
    let mut out = to_bytes(header.into_iter().chain(lengths).chain([u64::from(crc32fast::hash(&tables))]));
    let crc = u64::from(crc32fast::hash(&out));
    out.extend_from_slice(&to_bytes([crc]));
    [tables, rows, usage].iter().for_each(|table| out.extend_from_slice(table));
    out
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
        let numbers = read_numbers(&file, 0, HEADER)?;
        let [magic, number, indexed, part, counted_from, times, members, usage, tables_crc, crc] =
            numbers[..].try_into().expect("as many numbers were read");
        let head = to_bytes(numbers[..HEADER - 1].iter().copied());
        if magic != MAGIC {
            return Err(damaged("it is no index of format version 2"));
        }
        if number != segment || u64::from(crc32fast::hash(&head)) != crc {
            return Err(damaged("its header is not that of an index of this segment"));
        }
        let pages = members.div_ceil(PAGE);
        let tables = times.saturating_mul(3).saturating_add(pages);
        let members_at = (HEADER as u64).saturating_add(tables).saturating_mul(NUMBER);
        if members_at.saturating_add(members.saturating_mul(2 * NUMBER)).saturating_add(usage) != length {
            return Err(damaged("its length is another one"));
        }
        let tables = read_bytes(&file, HEADER as u64 * NUMBER, tables * NUMBER)?;
        if u64::from(crc32fast::hash(&tables)) != tables_crc {
            return Err(damaged("the times of its parts are damaged"));
        }
        let (times, pages) = split_tables(&tables, times);
        Ok(Some(Self { file, segment, length: indexed, part, counted_from, times, pages, members_at, members, usage }))
    }

    /// The stretch in which usage is counted.
    pub(crate) fn stretch(&self) -> Stretch {
        Stretch { segment: self.segment, from: self.counted_from, to: self.length }
    }

    /// The length of the parts of the segment.
    pub(crate) fn part(&self) -> u64 {
        self.part
    }

    /// Checks every byte.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when it is damaged.
    pub(crate) fn check(&self) -> io::Result<()> {
        (0..self.pages.len()).try_for_each(|page| self.read_page(page).map(drop))?;
        self.usage(|_| false).map(drop)
    }

    /// Reads the whole index.
    pub(crate) fn load(&self) -> io::Result<SegmentIndex> {
        let mut index = SegmentIndex::new(self.segment, self.part, FxHashMap::default());
        (index.length, index.counted_from) = (self.length, self.counted_from);
        index.members.times = self.times.clone();
        for page in 0..self.pages.len() {
            index.members.sets.extend(self.read_page(page)?);
        }
        index.counts = self.usage(|_| true)?;
        Ok(index)
    }

    /// Reads a page of members, and checks it.
    fn read_page(&self, page: usize) -> io::Result<Vec<(u64, u64)>> {
        let first = page as u64 * PAGE;
        let rows = self.members.saturating_sub(first).min(PAGE);
        let bytes = read_bytes(&self.file, self.members_at + first * 2 * NUMBER, rows * 2 * NUMBER)?;
        if self.pages.get(page) != Some(&crc32fast::hash(&bytes)) {
            return Err(damaged("the members of its parts are damaged"));
        }
        Ok(to_numbers(&bytes).chunks_exact(2).map(|row| (row[0], row[1])).collect())
    }

    /// The blocks that may hold records for a filter, oldest first.
    pub(crate) fn candidates(&self, filter: &Filter) -> io::Result<Vec<Block>> {
        let place = (self.segment, self.length, self.part.max(1));
        members::candidates(place, filter, &self.times, |hash| self.find_member(hash))
    }

    /// The set of parts of a hash.
    fn find_member(&self, hash: u64) -> io::Result<u64> {
        let (mut from, mut to) = (0, self.pages.len());
        while from < to {
            let middle = from.midpoint(to);
            let rows = self.read_page(middle)?;
            match rows.binary_search_by_key(&hash, |(hash, _)| *hash) {
                Ok(at) => return Ok(rows[at].1),
                // Between two pages, it is in none.
                Err(0) => to = middle,
                Err(at) if at == rows.len() => from = middle + 1,
                Err(_) => return Ok(0),
            }
        }
        Ok(0)
    }

    /// The usage of the keys that `select` selects.
    pub(crate) fn usage(&self, select: impl Fn(&KeyOwner) -> bool) -> io::Result<UsageCounts> {
        let bytes = read_bytes(&self.file, self.members_at + self.members * 2 * NUMBER, self.usage)?;
        usage_codec::decode(&bytes, self.segment, select).ok_or_else(|| damaged("its usage of keys is damaged"))
    }
}

/// Splits the small tables, of which the first has this many times.
fn split_tables(tables: &[u8], times: u64) -> (BTreeMap<u32, (u64, u64)>, Vec<u32>) {
    let numbers = to_numbers(tables);
    let (times, pages) = numbers.split_at(usize::try_from(times * 3).unwrap_or(numbers.len()).min(numbers.len()));
    let part = |row: &[u64]| u32::try_from(row[0].min(63)).expect("it is below 64");
    let times = times.chunks_exact(3).map(|row| (part(row), (row[1], row[2]))).collect();
    (times, pages.iter().map(|crc| u32::try_from(*crc).unwrap_or_default()).collect())
}

fn read_numbers(file: &File, at: u64, count: usize) -> io::Result<Vec<u64>> {
    read_bytes(file, at, count as u64 * NUMBER).map(|bytes| to_numbers(&bytes))
}

fn read_bytes(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn to_numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"))).collect()
}
