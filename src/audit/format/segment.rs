//! Segment files of a journal: names, listing, and reading in blocks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of a block, the unit of the index and of reading: about a thousand records.
pub(crate) const BLOCK: u64 = 256 * 1024;
/// Name of the file that the writing process locks.
pub(crate) const LOCK: &str = "lock";

/// A segment as listed from the directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Bytes at the time of listing.
    pub(crate) length: u64,
    /// Time of the last write.
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

/// Creates a segment, mode 0600. Empties one that a failed creation has left behind.
pub(crate) fn create(directory: &Path, number: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path(directory, number))
}

/// Lists the segments of a journal, oldest first.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".jsonl")) else { continue };
        let (Ok(number), Ok(metadata)) = (number.parse(), entry.metadata()) else { continue };
        segments.push(Segment { number, length: metadata.len(), modified: metadata.modified()? });
    }
    segments.sort_unstable_by_key(|segment| segment.number);
    Ok(segments)
}

/// Syncs the directory itself, so that the name of a new segment survives the death of the machine.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads the whole lines of a block into `piece`, and returns the offset of the first one. A segment that retention has
/// removed reads as empty.
pub(crate) fn read_block(directory: &Path, block: Block, piece: &mut Vec<u8>) -> io::Result<u64> {
    piece.clear();
    let file = match File::open(path(directory, block.segment)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(block.start),
        file => file?,
    };
    // The byte before the block tells whether the block begins with a line or inside one.
    let from = block.start.saturating_sub(1);
    append_from_file(&file, from, block.end.saturating_sub(from), piece)?;
    // The last line that begins in the block may end behind it: read on up to its newline.
    while piece.last().is_some_and(|byte| *byte != b'\n')
        && append_from_file(&file, from + piece.len() as u64, BLOCK, piece)?
    {
        let end = usize::try_from(block.end.saturating_sub(from)).unwrap_or(usize::MAX).saturating_sub(1);
        if let Some(newline) = piece.iter().skip(end).position(|byte| *byte == b'\n') {
            piece.truncate(end + newline + 1);
        }
    }
    if block.start > 0 {
        // A line that began before the block belongs to the block before it.
        let first = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |newline| newline + 1);
        piece.drain(..first);
        return Ok(from + first as u64);
    }
    Ok(0)
}

/// Appends up to `length` bytes of a file to `piece`. Returns false at the end of the file.
fn append_from_file(file: &File, from: u64, length: u64, piece: &mut Vec<u8>) -> io::Result<bool> {
    let before = piece.len();
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    piece.resize(before + length, 0);
    let mut filled = before;
    while filled < piece.len() {
        match file.read_at(&mut piece[filled..], from + (filled - before) as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(filled > before)
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
