//! Comparison of the parts of segments in the index with their lines: an index that was changed would hide records from
//! readers.
//!
//! The usage in it has sums over segments that may be gone; it cannot be compared.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::Connection;

use super::database;
use super::segment_index::SegmentIndex;
use super::segment_parts::SegmentParts;
use crate::audit::format::segment::Segment;
use crate::audit::format::source::SegmentSource;
use crate::files;

const DAMAGED: &str =
    "the index of the segment is damaged: readers read the segment instead, and the gateway makes it again";
const OTHER: &str = "the index of the segment is not that of its lines: readers may miss records; remove index.db, and \
                     the gateway makes it again";
const LONGER: &str = "the index of the segment is that of more lines: the end of the segment is missing";

/// Finds the segments among these whose index is not that of their lines, with what is wrong. In a journal in use, an
/// index may not have been brought up to its segment yet; of one that is made again meanwhile nothing is wrong.
///
/// # Errors
/// If a segment or the index cannot be read.
pub(crate) fn find_wrong(directory: &Path, segments: &[Segment], in_use: bool) -> io::Result<Vec<(u64, &'static str)>> {
    let path = directory.join(database::FILE);
    // A new file may have the number of the one that it replaces.
    let file = || std::fs::metadata(&path).ok().map(|file| (file.ino(), file.created().ok()));
    let Some(begun) = file() else { return Ok(Vec::new()) };
    find(directory, segments, in_use).or_else(|error| if file() == Some(begun) { Err(error) } else { Ok(Vec::new()) })
}

fn find(directory: &Path, segments: &[Segment], in_use: bool) -> io::Result<Vec<(u64, &'static str)>> {
    let mut wrong = Vec::new();
    let mut opened = if_intact(database::open_for_reading(directory))?;
    for segment in segments {
        let what = match &mut opened {
            Some(None) => None,
            Some(Some(connection)) => compare(directory, connection, segment, in_use)?,
            None => Some(DAMAGED),
        };
        wrong.extend(what.map(|what| (segment.number, what)));
    }
    Ok(wrong)
}

/// The result of reading the index; `None` when it is damaged.
fn if_intact<T>(result: rusqlite::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if database::is_damage(&error) => Ok(None),
        result => result.map(Some).map_err(io::Error::other),
    }
}

fn compare(
    directory: &Path,
    connection: &mut Connection,
    segment: &Segment,
    in_use: bool,
) -> io::Result<Option<&'static str>> {
    let mut read = || {
        // One transaction, so that the rows belong together.
        let transaction = connection.transaction()?;
        let Some(parts) = SegmentParts::load(&transaction, segment.number)? else { return Ok(None) };
        parts.members(&transaction).map(|members| Some((parts, members)))
    };
    let Some(found) = if_intact(read())? else { return Ok(Some(DAMAGED)) };
    // It is missing, or was left by a process that ended before the segment was closed.
    let Some((parts, members)) = found else { return Ok(None) };
    if parts.length != segment.length {
        // In a journal in use, lines are written meanwhile.
        return Ok((!in_use && parts.length > segment.length).then_some(LONGER));
    }
    if parts.part == 0 {
        return Ok(Some(OTHER));
    }
    let built = SegmentIndex::build(directory, segment, (parts.part, segment.length), || true);
    // Lines that cannot be read are reported elsewhere.
    let Some(built) = files::if_intact(built)?.flatten() else { return Ok(None) };
    // Retention may have removed the segment meanwhile.
    let is_right = members == built.members || SegmentSource::open(directory, segment.number)?.is_none();
    Ok((!is_right).then_some(OTHER))
}
