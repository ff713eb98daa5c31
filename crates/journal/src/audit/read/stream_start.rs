//! Start of a stream of records: whether the journal still has the position from which a sink goes on.

use std::io;
use std::path::Path;

use crate::audit::format::segment::{self, Point};
use crate::audit::format::source::SegmentSource;
use crate::audit::format::stream_position::StreamPosition;
use crate::files;

/// The position from which to read on, in the journal as it is now, and whether it no longer has the lines before it.
pub(super) fn find(directory: &Path, from: StreamPosition, end: Point) -> io::Result<(StreamPosition, bool)> {
    if from.segment > end.segment {
        return Ok((from.at_segment(end.segment), true));
    }
    let files = segment::list_files(directory)?;
    let first = files.iter().map(|file| file.number).find(|number| *number >= from.segment);
    Ok(match first {
        Some(first) if first > from.segment => (from.at_segment(first), false),
        Some(_) if from.offset == 0 || has_last_line(directory, &from)? => (from, false),
        // The journal has lost its end there: what is in the segment now comes from its beginning.
        Some(_) => (from.at_segment(from.segment), true),
        None => (from.at_segment(end.segment), true),
    })
}

/// Returns whether the last line before a position is the one that was read.
fn has_last_line(directory: &Path, position: &StreamPosition) -> io::Result<bool> {
    let length = position.offset.checked_sub(position.last_line).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > 0) else { return Ok(false) };
    let source = files::if_intact(SegmentSource::open(directory, position.segment))?.flatten();
    let Some(mut source) = source else { return Ok(false) };
    let mut line = vec![0; length];
    let read = files::fill(&mut line, position.last_line, |out, at| source.read_at(out, at));
    let is_whole = files::if_intact(read)? == Some(length);
    Ok(is_whole && position.has_read(&line))
}
