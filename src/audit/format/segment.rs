//! The files of a journal: their names, their listing, and reading pieces of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of a block: what the index points to and readers read at once. Some hundred records.
pub(crate) const BLOCK: u64 = 256 * 1024;

/// The file that the one writing process has locked.
pub(crate) const LOCK: &str = "lock";

/// A point in the journal: a segment and an offset in it.
pub(crate) type Point = (u64, u64);

/// A segment as the directory shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Bytes, when it was listed.
    pub(crate) length: u64,
    /// When it was written to last.
    pub(crate) modified: SystemTime,
}

/// The lines of a segment that *begin* at `start` or after, and before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) segment: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Creates the journal's directory, mode 0700, unless it is there.
pub(crate) fn create_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Where a segment is.
pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.jsonl"))
}

/// Creates a segment, or empties one whose creation had failed half-way.
pub(crate) fn create(directory: &Path, number: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path(directory, number))
}

/// The segments of a journal, oldest first.
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

/// Syncs the directory itself, so that the name of a new segment survives the machine's death.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads the whole lines of a block into `piece`, and gives the offset of the first of them. A segment that retention
/// has removed reads as empty.
pub(crate) fn read(directory: &Path, block: Block, piece: &mut Vec<u8>) -> io::Result<u64> {
    piece.clear();
    let file = match File::open(path(directory, block.segment)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(block.start),
        file => file?,
    };
    // One byte more at the front tells whether the block begins with a line or within one.
    let from = block.start.saturating_sub(1);
    append(&file, from, block.end.saturating_sub(from), piece)?;
    while piece.last().is_some_and(|byte| *byte != b'\n') && append(&file, from + piece.len() as u64, BLOCK, piece)? {
        let end = usize::try_from(block.end.saturating_sub(from)).unwrap_or(usize::MAX).saturating_sub(1);
        if let Some(newline) = piece.iter().skip(end).position(|byte| *byte == b'\n') {
            piece.truncate(end + newline + 1);
        }
    }
    if block.start > 0 {
        let first = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |newline| newline + 1);
        piece.drain(..first);
        return Ok(from + first as u64);
    }
    Ok(0)
}

/// Appends up to `length` bytes of a file; whether there were any.
fn append(file: &File, from: u64, length: u64, piece: &mut Vec<u8>) -> io::Result<bool> {
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

/// Whether a journal has a point, or had it in a segment that retention has removed since.
pub(crate) fn reach(segments: &[Segment], (number, offset): (u64, u64)) -> bool {
    let at = segments.partition_point(|segment| segment.number < number);
    segments.get(at).is_some_and(|segment| segment.length >= offset || (segment.number > number && at == 0))
}

/// What lies beyond a point of a journal, in blocks, oldest first.
pub(crate) fn beyond(segments: &[Segment], (number, offset): (u64, u64)) -> impl Iterator<Item = Block> {
    segments.iter().filter(move |segment| segment.number >= number).flat_map(move |segment| {
        let from = if segment.number == number { offset } else { 0 };
        blocks(segment.number, from, segment.length)
    })
}

/// Cuts a stretch of a segment into blocks, oldest first.
pub(crate) fn blocks(segment: u64, from: u64, to: u64) -> impl DoubleEndedIterator<Item = Block> {
    let count = to.saturating_sub(from).div_ceil(BLOCK);
    (0..count).map(move |i| Block { segment, start: from + i * BLOCK, end: to.min(from + (i + 1) * BLOCK) })
}
