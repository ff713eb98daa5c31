//! Comparison of the indexes of closed segments with their lines: an index that was replaced would hide records from readers.
//!
//! The database of the index has sums over segments that may be gone; it cannot be compared.

use std::io;
use std::path::Path;

use super::index_file::{self, IndexFile};
use super::segment_index::SegmentIndex;
use crate::audit::format::segment::Segment;

/// Finds the segments among these, all closed, whose index is not that of their lines. In a journal in use, an index may not have been
/// brought up to its segment yet.
///
/// # Errors
/// If a segment cannot be read.
pub(crate) fn find_wrong(directory: &Path, closed: &[Segment], in_use: bool) -> io::Result<Vec<u64>> {
    let mut wrong = Vec::new();
    for segment in closed {
        let is_right = match IndexFile::open(directory, segment.number, segment.length) {
            Some(file) => is_right(directory, segment, &file)?,
            // Readers do not use it: it is missing, or was left by a process that ended before the segment was closed.
            None => {
                in_use
                    || !index_file::path(directory, segment.number).exists()
                    || IndexFile::is_of_earlier_part(directory, segment.number, segment.length)
            }
        };
        if !is_right {
            wrong.push(segment.number);
        }
    }
    Ok(wrong)
}

fn is_right(directory: &Path, segment: &Segment, file: &IndexFile) -> io::Result<bool> {
    let Ok(found) = file.load() else { return Ok(false) };
    if file.part() == 0 {
        return Ok(false);
    }
    let built = SegmentIndex::build(directory, segment, (file.part(), file.stretch().from), || true);
    match built {
        Ok(Some(built)) => Ok(is_same(&found, &built)),
        // Its lines cannot be read, which is reported elsewhere.
        Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error),
        _ => Ok(true),
    }
}

/// True when an index leads to the lines to which the segment itself leads, and counts what it counts.
fn is_same(found: &SegmentIndex, built: &SegmentIndex) -> bool {
    found.members == built.members && found.counts.keys == built.counts.keys
}
