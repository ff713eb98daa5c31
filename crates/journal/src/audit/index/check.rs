//! Comparison of the indexes of segments with their lines: an index that was replaced would hide records from readers.
//!
//! The database of the index has sums over segments that may be gone; it cannot be compared.

use std::io;
use std::path::Path;

use super::index_file::{self, IndexFile};
use super::segment_index::SegmentIndex;
use crate::audit::format::segment::Segment;
use crate::audit::format::source::SegmentSource;
use crate::files;

const DAMAGED: &str =
    "the index of the segment is damaged: readers read the segment instead, and the gateway makes it again";
const OTHER: &str = "the index of the segment is not that of its lines: readers may miss records; remove the file, and \
                     the gateway makes it again";
const LONGER: &str = "the index of the segment is that of more lines: the end of the segment is missing";

/// Finds the segments among these whose index is not that of their lines, with what is wrong. In a journal in use, an
/// index may not have been brought up to its segment yet.
///
/// # Errors
/// If a segment cannot be read.
pub(crate) fn find_wrong(directory: &Path, segments: &[Segment], in_use: bool) -> io::Result<Vec<(u64, &'static str)>> {
    let mut wrong = Vec::new();
    for segment in segments {
        let what = match IndexFile::open(directory, segment.number, segment.length) {
            Ok(Some(file)) => compare(directory, segment, &file)?,
            // Readers do not use it: it is missing, or was left by a process that ended before the segment was closed.
            Ok(None) => is_longer(directory, segment, in_use).then_some(LONGER),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(DAMAGED),
            Err(error) => return Err(error),
        };
        wrong.extend(what.map(|what| (segment.number, what)));
    }
    Ok(wrong)
}

/// Returns whether an index is that of more lines than the segment has. In a journal in use, lines
/// are written meanwhile.
fn is_longer(directory: &Path, segment: &Segment, in_use: bool) -> bool {
    !in_use && index_file::indexed_length(directory, segment.number).is_some_and(|length| length > segment.length)
}

fn compare(directory: &Path, segment: &Segment, file: &IndexFile) -> io::Result<Option<&'static str>> {
    let Some(found) = files::if_intact(file.members())? else { return Ok(Some(DAMAGED)) };
    if file.part() == 0 {
        return Ok(Some(OTHER));
    }
    let built = SegmentIndex::build(directory, segment, (file.part(), segment.length), || true);
    // Lines that cannot be read are reported elsewhere.
    let Some(built) = files::if_intact(built)?.flatten() else { return Ok(None) };
    // Retention may have removed the segment meanwhile.
    let is_right = found == built.members || SegmentSource::open(directory, segment.number)?.is_none();
    Ok((!is_right).then_some(OTHER))
}
