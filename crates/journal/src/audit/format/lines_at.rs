//! Reading single lines by their places.

use std::io;
use std::path::PathBuf;

use super::segment::{BLOCK, Block, Point};
use super::source::{self, Piece};

/// Reader of single lines. It keeps the last block: lines that are asked for in the order of the journal are read once.
#[derive(Debug)]
pub(crate) struct LinesAt {
    directory: PathBuf,
    block: Option<Block>,
    /// Offset of the first line in `piece`.
    start: u64,
    piece: Piece,
}

impl LinesAt {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, block: None, start: 0, piece: Piece::default() }
    }

    /// The line that begins at a point, without its newline; `None` when it is no longer there.
    pub(crate) fn read(&mut self, at: Point) -> io::Result<Option<&[u8]>> {
        let start = at.offset - at.offset % BLOCK;
        let block = Block { segment: at.segment, start, end: start + BLOCK };
        if self.block != Some(block) {
            self.block = None;
            self.start = source::read_block(&self.directory, block, &mut self.piece)?;
            self.block = Some(block);
        }
        let from = at.offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let rest = from.and_then(|from| self.piece.get(from..)).unwrap_or_default();
        Ok(rest.iter().position(|byte| *byte == b'\n').map(|end| &rest[..end]))
    }
}
