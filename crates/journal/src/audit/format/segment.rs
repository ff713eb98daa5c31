//! Segment files of a journal: names, listing, and blocks.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::compressed::CompressedSegment;
use crate::files;

/// Bytes of a block, the unit of the index and of reading: about a thousand records.
pub(crate) const BLOCK: u64 = 256 * 1024;
/// Segments in a row that one listing may miss.
const MAX_GAP: u64 = 16;
/// Name of the file that the writing process locks.
pub(crate) const LOCK: &str = "lock";

/// A segment as listed from the directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Bytes of its lines at the time of listing.
    pub(crate) length: u64,
}

/// The file of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) number: u64,
    pub(crate) is_compressed: bool,
    /// Bytes on the disk.
    pub(crate) size: u64,
    /// Time of the last write of a line.
    pub(crate) modified: SystemTime,
}

/// A position in the journal. Positions are ordered as the journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Byte offset in the segment.
    pub(crate) offset: u64,
}

impl Point {
    /// The beginning of every journal: segments are numbered from 1.
    pub(crate) const START: Self = Self { segment: 0, offset: 0 };
}

/// The lines of a segment that *begin* at offset `start` or after, and before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) segment: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Block {
    /// The first line of a segment: its header.
    pub(crate) const fn header_of(segment: u64) -> Self {
        Self { segment, start: 0, end: 1 }
    }
}

/// Creates the journal's directory, mode 0700, unless it exists.
pub(crate) fn create_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Path of a segment.
pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.jsonl"))
}

/// Path of a compressed segment.
pub(crate) fn compressed_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.jsonl.zst"))
}

/// Removes the file of a segment, plain or compressed.
pub(crate) fn remove(directory: &Path, number: u64) -> io::Result<()> {
    let paths = [path(directory, number), compressed_path(directory, number)];
    for path in paths.iter().filter(|path| path.exists()) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// True when a process holds the journal's lock.
pub(crate) fn is_locked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Lists the segments of a journal, oldest first.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    list_from(directory, 0)
}

/// Lists the segments of a journal from this number on, oldest first.
pub(crate) fn list_from(directory: &Path, first: u64) -> io::Result<Vec<Segment>> {
    let files = list_files(directory)?.into_iter().filter(|file| file.number >= first);
    let lengths = files.map(|file| {
        let length = if file.is_compressed { compressed_length(directory, file.number)? } else { Some(file.size) };
        Ok(length.map(|length| Segment { number: file.number, length }))
    });
    lengths.filter_map(io::Result::transpose).collect()
}

/// The length of a compressed segment; `None` when retention has removed it meanwhile.
fn compressed_length(directory: &Path, number: u64) -> io::Result<Option<u64>> {
    match files::if_intact(CompressedSegment::open(&compressed_path(directory, number)))? {
        Some(found) => Ok(found.map(|segment| segment.length())),
        // It has lines, which cannot be read: a reader must fail rather than skip them.
        None => Ok(Some(1)),
    }
}

/// Lists the files of the segments of a journal, oldest first, without opening them.
pub(crate) fn list_files(directory: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((number, extension)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let (Ok(number), Ok(metadata)) = (number.parse(), entry.metadata()) else { continue };
        if matches!(extension, "jsonl" | "jsonl.zst") {
            let is_compressed = extension != "jsonl";
            files.push(SegmentFile { number, is_compressed, size: metadata.len(), modified: metadata.modified()? });
        }
    }
    // The plain file comes first where both are there, for a moment: they have the same lines.
    files.sort_unstable_by_key(|file| (file.number, file.is_compressed));
    files.dedup_by_key(|file| file.number);
    add_missed(directory, &mut files);
    update_closed(directory, &mut files);
    Ok(files)
}

/// Reads the sizes again of segments before the last one: they are closed, but may have grown between their turn and
/// that of the last one.
fn update_closed(directory: &Path, files: &mut [SegmentFile]) {
    let closed = files.split_last_mut().map(|(_, closed)| closed).unwrap_or_default();
    for file in closed.iter_mut().filter(|file| !file.is_compressed) {
        *file = find_file(directory, file.number).unwrap_or(*file);
    }
}

/// Adds segments that were compressed while the directory was read: it may have shown neither file of them.
fn add_missed(directory: &Path, files: &mut Vec<SegmentFile>) {
    let Some(first) = files.first().map(|file| file.number) else { return };
    let gaps = files.windows(2).map(|pair| pair[0].number + 1..pair[1].number);
    // A longer gap has another reason.
    let gaps = gaps.filter(|gap| gap.end - gap.start <= MAX_GAP);
    let missed: Vec<SegmentFile> =
        gaps.flatten().chain(first.checked_sub(1)).filter_map(|number| find_file(directory, number)).collect();
    files.extend(missed);
    files.sort_unstable_by_key(|file| file.number);
}

fn find_file(directory: &Path, number: u64) -> Option<SegmentFile> {
    let paths = [(path(directory, number), false), (compressed_path(directory, number), true)];
    paths.into_iter().find_map(|(path, is_compressed)| {
        let metadata = fs::metadata(path).ok()?;
        Some(SegmentFile { number, is_compressed, size: metadata.len(), modified: metadata.modified().ok()? })
    })
}

/// True when a journal with these segments reaches a point, or has reached it in a segment that retention has removed.
pub(crate) fn covers(segments: &[Segment], point: Point) -> bool {
    let at = segments.partition_point(|segment| segment.number < point.segment);
    segments
        .get(at)
        .is_some_and(|segment| segment.length >= point.offset || (segment.number > point.segment && at == 0))
}

/// Cuts a range of a segment into blocks, oldest first.
pub(crate) fn blocks(segment: u64, from: u64, to: u64) -> impl DoubleEndedIterator<Item = Block> {
    let count = to.saturating_sub(from).div_ceil(BLOCK);
    (0..count).map(move |i| Block { segment, start: from + i * BLOCK, end: to.min(from + (i + 1) * BLOCK) })
}
