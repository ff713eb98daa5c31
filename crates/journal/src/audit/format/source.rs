//! Reading the lines of a segment by their offsets, whether its file is plain or compressed.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::compressed::CompressedSegment;
use super::segment::{self, Block};
use super::version;
use crate::files;

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
    /// [`io::ErrorKind::InvalidData`] when a compressed one is damaged; [`io::ErrorKind::Unsupported`] when it is of
    /// another version.
    pub(crate) fn open(directory: &Path, number: u64) -> io::Result<Option<Self>> {
        // In this order: the compressed file is there before the plain one is removed.
        let path = segment::path(directory, number);
        if let Some(file) = files::if_found(File::open(&path))? {
            version::check_plain(&path, &file)?;
            return Ok(Some(Self::Plain(file)));
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

    /// Reads up to `length` bytes from an offset on to `buffer[to..]`, which grows where it is too short. Returns their
    /// number; 0 at the end.
    fn fill(&mut self, buffer: &mut Vec<u8>, to: usize, from: u64, length: u64) -> io::Result<usize> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if buffer.len() < to + length {
            buffer.resize(to + length, 0);
        }
        files::fill(&mut buffer[to..to + length], from, |out, at| self.read_at(out, at))
    }
}

/// The lines of a block. It keeps the segment open in which the block is, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Never shortened: to lengthen it again for the next block would fill it with zeros once more.
    buffer: Vec<u8>,
    /// The part of the buffer with the lines.
    lines: Range<usize>,
    source: Option<(u64, SegmentSource)>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.lines.clone()]
    }
}

impl Piece {
    /// Opens a segment, and keeps it open until another one is read. Returns false when there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when a compressed one is damaged.
    pub(crate) fn hold(&mut self, directory: &Path, number: u64) -> io::Result<bool> {
        Ok(open(&mut self.source, directory, number)?.is_some())
    }
}

/// Opens a segment in place of the one that is open, unless it is that one.
fn open<'a>(
    source: &'a mut Option<(u64, SegmentSource)>,
    directory: &Path,
    number: u64,
) -> io::Result<Option<&'a mut SegmentSource>> {
    if source.as_ref().is_none_or(|(open, _)| *open != number) {
        *source = None;
        *source = SegmentSource::open(directory, number)?.map(|opened| (number, opened));
    }
    Ok(source.as_mut().map(|(_, source)| source))
}

/// Reads the whole lines of a block into `piece`, and returns the offset of the first one. A segment that retention has
/// removed reads as empty.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when a compressed segment is damaged there.
pub(crate) fn read_block(directory: &Path, block: Block, piece: &mut Piece) -> io::Result<u64> {
    let Piece { buffer, lines, source } = piece;
    *lines = 0..0;
    let Some(source) = open(source, directory, block.segment)? else { return Ok(block.start) };
    *lines = read_lines(source, block, buffer)?;
    Ok(read_from(block) + lines.start as u64)
}

/// Offset from which a block is read: the byte before it tells whether it begins with a line or inside one.
fn read_from(block: Block) -> u64 {
    block.start.saturating_sub(1)
}

/// Reads a block from [`read_from`] on, and returns the part of `buffer` with its lines.
fn read_lines(source: &mut SegmentSource, block: Block, buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
    let from = read_from(block);
    let length = block.end.saturating_sub(from);
    let mut filled = source.fill(buffer, 0, from, length)?;
    // The last line that begins in the block may end behind it: read on up to its newline.
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(1);
    while filled > 0 && buffer[filled - 1] != b'\n' {
        let read = source.fill(buffer, filled, from + filled as u64, REST_OF_LINE)?;
        if read == 0 {
            break;
        }
        filled += read;
        if let Some(newline) = buffer[..filled].iter().skip(end).position(|byte| *byte == b'\n') {
            filled = end + newline + 1;
        }
    }
    if block.start == 0 {
        return Ok(0..filled);
    }
    // A line that began before the block belongs to the block before it.
    let first = buffer[..filled].iter().position(|byte| *byte == b'\n').map_or(filled, |newline| newline + 1);
    Ok(first..filled)
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
