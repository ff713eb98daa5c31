//! The file of a segment's index, `NNNNNNNNNN.index` beside the segment.
//!
//! - It is derived data: one that is missing, torn or of another length than its segment is built again from the segment.
//! - It is written under another name and renamed when it is on disk: a crash leaves no part of one.
//! - A look-up of an id is a binary search in the file: the file is not read as a whole.
//!
//! ```text
//! header | times: part, earliest, latest … | members: hash, set of parts, by hash … | usage of keys
//! ```
//!
//! All numbers are little-endian; the header ends with the CRC-32 of itself, the usage with that of itself.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::indexed_use::KeyOwner;
use super::live_index::Stretch;
use super::members;
use super::segment_index::SegmentIndex;
use super::usage_codec;
use super::usage_counts::UsageCounts;
use crate::audit::filter::Filter;
use crate::audit::format::segment::{self, Block};

/// First bytes of the file, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"kgindex1");
/// Numbers in the header: magic, segment, length, part length, counted from, times, members, bytes of usage, CRC-32.
const HEADER: usize = 9;
/// Bytes of a number.
const NUMBER: u64 = 8;

/// An index file that is open for reading.
#[derive(Debug)]
pub(crate) struct IndexFile {
    file: File,
    segment: u64,
    /// Length of the segment.
    length: u64,
    part: u64,
    counted_from: u64,
    times: u64,
    members: u64,
    usage: u64,
}

/// Path of the index of a segment.
pub(crate) fn path(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("{segment:010}.index"))
}

/// Writes the index of a closed segment.
pub(crate) fn write(directory: &Path, index: &SegmentIndex) -> io::Result<()> {
    let target = path(directory, index.segment);
    let temporary = target.with_extension("index.tmp");
    let written = write_new(&temporary, &encode(index)).and_then(|()| fs::rename(&temporary, &target));
    written.inspect_err(|_| {
        let removed = fs::remove_file(&temporary);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "cannot remove an unfinished index of a segment"));
    })?;
    segment::sync_directory(directory)
}

/// The length of the segment that its index covers; `None` when there is no whole one.
pub(crate) fn indexed_length(directory: &Path, segment: u64) -> Option<u64> {
    IndexFile::open_any(directory, segment).map(|opened| opened.length)
}

/// Removes the index of a segment.
pub(crate) fn remove(directory: &Path, segment: u64) {
    let removed = fs::remove_file(path(directory, segment));
    removed.unwrap_or_else(|error| tracing::debug!(%error, segment, "no index of a segment to remove"));
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn encode(index: &SegmentIndex) -> Vec<u8> {
    let mut members: Vec<(u64, u64)> = index.members.sets.iter().map(|(hash, set)| (*hash, *set)).collect();
    members.sort_unstable();
    let usage = usage_codec::encode(&index.counts);
    let lengths = [index.members.times.len(), members.len(), usage.len()].map(|length| length as u64);
    let header = [MAGIC, index.segment, index.length, index.members.part, index.counted_from];
    let mut out = Vec::with_capacity(usage.len() + members.len() * 16 + 4096);
    let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
    header.into_iter().chain(lengths).for_each(&mut put);
    let crc = crc32fast::hash(&out);
    let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
    put(crc.into());
    for (part, (earliest, latest)) in &index.members.times {
        [u64::from(*part), *earliest, *latest].into_iter().for_each(&mut put);
    }
    members.into_iter().flat_map(<[u64; 2]>::from).for_each(&mut put);
    out.extend_from_slice(&usage);
    out
}

impl IndexFile {
    /// Opens the index of a segment of this length. `None` when there is none that fits.
    pub(crate) fn open(directory: &Path, segment: u64, length: u64) -> Option<Self> {
        Self::open_any(directory, segment).filter(|opened| opened.length == length)
    }

    /// True when the index of a segment is whole, and of an earlier part of it.
    pub(crate) fn is_of_earlier_part(directory: &Path, segment: u64, length: u64) -> bool {
        Self::open_any(directory, segment).is_some_and(|opened| opened.length < length)
    }

    /// Opens the index of a segment, of whatever length that is.
    fn open_any(directory: &Path, segment: u64) -> Option<Self> {
        let file = File::open(path(directory, segment)).ok()?;
        let numbers = read_numbers(&file, 0, HEADER).ok()?;
        let [magic, number, indexed, part, counted_from, times, members, usage, crc] = numbers[..].try_into().ok()?;
        let mut head = Vec::new();
        numbers[..HEADER - 1].iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
        let fits = (magic, number) == (MAGIC, segment) && u64::from(crc32fast::hash(&head)) == crc;
        let opened = Self { file, segment, length: indexed, part, counted_from, times, members, usage };
        let is_whole = || opened.file.metadata().is_ok_and(|metadata| metadata.len() == opened.usage_at() + usage);
        (fits && is_whole()).then_some(opened)
    }

    /// The stretch in which usage is counted.
    pub(crate) fn stretch(&self) -> Stretch {
        Stretch { segment: self.segment, from: self.counted_from, to: self.length }
    }

    /// The length of the parts of the segment.
    pub(crate) fn part(&self) -> u64 {
        self.part
    }

    /// Reads the whole index.
    pub(crate) fn load(&self) -> io::Result<SegmentIndex> {
        let mut index = SegmentIndex::new(self.segment, self.part, FxHashMap::default());
        (index.length, index.counted_from) = (self.length, self.counted_from);
        index.members.times = self.read_times()?;
        let count = usize::try_from(self.members * 2).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let members = read_numbers(&self.file, self.members_at(), count)?;
        index.members.sets = members.chunks_exact(2).map(|row| (row[0], row[1])).collect();
        index.counts = self.usage(|_| true)?;
        Ok(index)
    }

    fn read_times(&self) -> io::Result<BTreeMap<u32, (u64, u64)>> {
        let numbers = read_numbers(&self.file, self.times_at(), usize::try_from(self.times * 3).unwrap_or(0))?;
        let part = |row: &[u64]| u32::try_from(row[0].min(63)).expect("it is below 64");
        Ok(numbers.chunks_exact(3).map(|row| (part(row), (row[1], row[2]))).collect())
    }

    /// The blocks that may hold records for a filter, oldest first.
    pub(crate) fn candidates(&self, filter: &Filter) -> io::Result<Vec<Block>> {
        let times = self.read_times()?;
        let place = (self.segment, self.length, self.part.max(1));
        members::candidates(place, filter, &times, |hash| self.find_member(hash))
    }

    /// The set of parts of a hash.
    fn find_member(&self, hash: u64) -> io::Result<u64> {
        let (mut from, mut to) = (0, self.members);
        while from < to {
            let middle = from.midpoint(to);
            let row = read_numbers(&self.file, self.members_at() + middle * 2 * NUMBER, 2)?;
            match row[0].cmp(&hash) {
                std::cmp::Ordering::Equal => return Ok(row[1]),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok(0)
    }

    /// The usage of the keys that `select` selects.
    pub(crate) fn usage(&self, select: impl Fn(&KeyOwner) -> bool) -> io::Result<UsageCounts> {
        let mut bytes = vec![0; usize::try_from(self.usage).map_err(|_| io::ErrorKind::FileTooLarge)?];
        self.file.read_exact_at(&mut bytes, self.usage_at())?;
        usage_codec::decode(&bytes, self.segment, select)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the usage in the index of a segment is damaged"))
    }

    fn times_at(&self) -> u64 {
        HEADER as u64 * NUMBER
    }

    fn members_at(&self) -> u64 {
        self.times_at() + self.times.saturating_mul(3 * NUMBER)
    }

    fn usage_at(&self) -> u64 {
        self.members_at().saturating_add(self.members.saturating_mul(2 * NUMBER))
    }
}

fn read_numbers(file: &File, at: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * NUMBER as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"))).collect())
}
