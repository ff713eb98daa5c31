//! Reading of the lines of a segment, which are the leaves of the tree.

use std::io;
use std::path::Path;

use crate::audit::format::line;
use crate::audit::format::segment::{self, Segment};
use crate::audit::format::source::{self, Piece};

/// Beginning of the line of a checkpoint: the seal of segment 0, which is the journal as a whole. Versions that do not
/// know checkpoints read it as the seal of a segment that is not there, and pass over it.
const CHECKPOINT: &[u8] = b"{\"e\":\"seal\",\"segment\":0,";

/// True for the line of a checkpoint.
pub(crate) fn is_checkpoint(line: &[u8]) -> bool {
    line.starts_with(CHECKPOINT)
}

/// Calls `each` with every whole line of a segment from an offset on, without its newline, and with its offset.
/// `proceed` is asked before each block; returns false when it said no.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the segment is not there, [`io::ErrorKind::InvalidData`] when it is damaged, and
/// any error of `each`.
pub(crate) fn for_each<E: From<io::Error>>(
    directory: &Path,
    segment: Segment,
    from: u64,
    proceed: impl Fn() -> bool,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let mut piece = Piece::default();
    // It stays open from here on, so that a removal does not make it end early.
    if !piece.hold(directory, segment.number)? {
        return Err(missing(segment.number).into());
    }
    for block in segment::blocks(segment.number, from, segment.length) {
        if !proceed() {
            return Ok(false);
        }
        let start = source::read_block(directory, block, &mut piece)?;
        for (at, line) in line::split_lines(&piece) {
            each(start + at as u64, line)?;
        }
    }
    Ok(true)
}

/// Calls `each` with every whole line of a segment.
///
/// # Errors
/// As [`for_each`].
pub(crate) fn read_all(directory: &Path, segment: Segment, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let line = |_, line: &[u8]| {
        each(line);
        io::Result::Ok(())
    };
    for_each(directory, segment, 0, || true, line).map(drop)
}

/// The error of a segment that is not there.
pub(crate) fn missing(number: u64) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("segment {number} of the audit journal is not there"))
}
