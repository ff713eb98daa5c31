//! Reading the lines of a segment by their offsets, whether its file is plain or compressed.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::compressed::CompressedSegment;
use super::segment::{self, Block};

/// Bytes that are read at a time behind a block, to complete its last line. Most lines are shorter.
const REST_OF_LINE: u64 = 4 << 10;

/// The lines of a segment.
#[derive(Debug)]
pub(crate) enum SegmentSource {
    Plain(File),
    Compressed(CompressedSegment),
}

impl SegmentSource {
    /// Opens a segment; `None` when there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when a compressed one is damaged.
    pub(crate) fn open(directory: &Path, number: u64) -> io::Result<Option<Self>> {
        // In this order: the compressed file is there before the plain one is removed.
        match File::open(segment::path(directory, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => return file.map(Self::Plain).map(Some),
        }
        Ok(CompressedSegment::open(&segment::compressed_path(directory, number))?.map(Self::Compressed))
    }

    /// Reads from an offset on; 0 bytes at the end.
    pub(crate) fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read_at(out, offset),
            Self::Compressed(compressed) => compressed.read_at(out, offset),
        }
    }

    /// Appends up to `length` bytes from an offset on to `piece`. Returns false at the end.
    fn append_from(&mut self, from: u64, length: u64, piece: &mut Vec<u8>) -> io::Result<bool> {
        let before = piece.len();
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        piece.resize(before + length, 0);
        let mut filled = before;
        while filled < piece.len() {
            match self.read_at(&mut piece[filled..], from + (filled - before) as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        piece.truncate(filled);
        Ok(filled > before)
    }
}

/// The lines of a block. It keeps the segment open in which the block is, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    lines: Vec<u8>,
    source: Option<(u64, SegmentSource)>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.lines
    }
}

impl Piece {
    /// Opens a segment, and keeps it open until another one is read. Returns false when there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when a compressed one is damaged.
    pub(crate) fn hold(&mut self, directory: &Path, number: u64) -> io::Result<bool> {
        Ok(self.open(directory, number)?.is_some())
    }

    fn open(&mut self, directory: &Path, number: u64) -> io::Result<Option<&mut SegmentSource>> {
        if self.source.as_ref().is_none_or(|(open, _)| *open != number) {
            self.source = None;
            self.source = SegmentSource::open(directory, number)?.map(|source| (number, source));
        }
        Ok(self.source.as_mut().map(|(_, source)| source))
    }
}

/// Reads the whole lines of a block into `piece`, and returns the offset of the first one. A segment that retention has
/// removed reads as empty.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when a compressed segment is damaged there.
pub(crate) fn read_block(directory: &Path, block: Block, piece: &mut Piece) -> io::Result<u64> {
    let mut lines = std::mem::take(&mut piece.lines);
    lines.clear();
    let start = match piece.open(directory, block.segment)? {
        Some(source) => read_lines(source, block, &mut lines)?,
        None => block.start,
    };
    piece.lines = lines;
    Ok(start)
}

fn read_lines(source: &mut SegmentSource, block: Block, lines: &mut Vec<u8>) -> io::Result<u64> {
    // The byte before the block tells whether the block begins with a line or inside one.
    let from = block.start.saturating_sub(1);
    source.append_from(from, block.end.saturating_sub(from), lines)?;
    // The last line that begins in the block may end behind it: read on up to its newline.
    while lines.last().is_some_and(|byte| *byte != b'\n')
        && source.append_from(from + lines.len() as u64, REST_OF_LINE, lines)?
    {
        let end = usize::try_from(block.end.saturating_sub(from)).unwrap_or(usize::MAX).saturating_sub(1);
        if let Some(newline) = lines.iter().skip(end).position(|byte| *byte == b'\n') {
            lines.truncate(end + newline + 1);
        }
    }
    if block.start > 0 {
        // A line that began before the block belongs to the block before it.
        let first = lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |newline| newline + 1);
        lines.drain(..first);
        return Ok(from + first as u64);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that are shorter and longer than a block and than the pieces in which the rest of a line is read.
    #[test]
    fn blocks_share_the_lines_without_gap_and_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let lengths = [0, 1, 700, 4 << 10, 0, 9000, 20_000, 3, 4095, 4097, 12];
        let text: Vec<u8> = lengths.iter().flat_map(|length| [&vec![b'x'; *length][..], b"\n"].concat()).collect();
        std::fs::write(segment::path(dir.path(), 1), &text).unwrap();
        let mut piece = Piece::default();
        for size in [61, 511, 4096, 5000, 50_000] {
            let mut joined = Vec::new();
            for start in (0..text.len() as u64).step_by(size) {
                let block = Block { segment: 1, start, end: start + size as u64 };
                let first = read_block(dir.path(), block, &mut piece).unwrap();
                assert!(piece.is_empty() || first == joined.len() as u64, "block of {size} at {start}");
                assert!(piece.is_empty() || piece.ends_with(b"\n"), "block of {size} at {start}");
                joined.extend_from_slice(&piece);
            }
            assert!(joined == text, "blocks of {size} bytes");
        }
    }
}
