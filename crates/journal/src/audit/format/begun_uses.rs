//! The uses that are open at a position of the journal, with the events of their beginnings.
//!
//! - Only segments that hold such beginnings are read: a use of a week costs reading two segments.
//! - A beginning that is damaged, or whose segment is gone, is left out.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::event::UseEvent;
use super::line::{self, EventKind};
use super::open_uses::{self, OpenUses};
use super::segment::Point;
use super::source::SegmentSource;
use super::{decode, pieces};
use crate::files;

/// A use that has begun, and the gateway that recorded it.
#[derive(Debug)]
pub(crate) struct BegunUse {
    pub(crate) event: UseEvent<'static>,
    /// Shared by all uses of a segment.
    pub(crate) gateway: Arc<str>,
}

/// Finds the uses that are open at a point.
pub(crate) fn open_at(directory: &Path, point: Point) -> io::Result<FxHashMap<u128, BegunUse>> {
    let mut found = FxHashMap::default();
    let Some(header) = open_uses::read_header(directory, point.segment)? else { return Ok(found) };
    let mut earlier = OpenUses::at(directory, &header)?.uses;
    let mut begun: FxHashMap<u128, (u64, usize)> = FxHashMap::default();
    for_each_line_before(directory, point, |at, line| {
        let Some(id) = line::event_id(line) else { return };
        match line::event_kind(line) {
            Some(EventKind::Use | EventKind::Carried) => drop(begun.insert(id, (at, line.len()))),
            Some(EventKind::Outcome) => {
                begun.remove(&id);
                earlier.remove(&id);
            }
            _ => {}
        }
    })?;
    earlier.retain(|id, _| !begun.contains_key(id));
    read_begun(directory, point.segment, begun.into_keys().collect(), &mut found)?;
    let mut by_segment: FxHashMap<u64, FxHashSet<u128>> = FxHashMap::default();
    for (id, open) in earlier {
        by_segment.entry(open.segment).or_default().insert(id);
    }
    for (segment, ids) in by_segment {
        read_begun(directory, segment, ids, &mut found)?;
    }
    Ok(found)
}

/// Reads the beginnings with these ids in a segment. A segment that is damaged or gone has none.
fn read_begun(
    directory: &Path,
    segment: u64,
    ids: FxHashSet<u128>,
    found: &mut FxHashMap<u128, BegunUse>,
) -> io::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let header = open_uses::read_header(directory, segment)?;
    let gateway: Arc<str> = header.map_or_else(Arc::default, |header| header.gateway.as_ref().into());
    for_each_line_before(directory, Point { segment, offset: u64::MAX }, |_, line| {
        let begins = matches!(line::event_kind(line), Some(EventKind::Use | EventKind::Carried));
        if let Some(id) = line::event_id(line).filter(|id| begins && ids.contains(id))
            && let Some(event) = decode::verified_use(line)
        {
            found.insert(id, BegunUse { event: event.into_owned(), gateway: Arc::clone(&gateway) });
        }
    })
}

/// Calls `each` with the whole lines of a segment before a point, and their offsets.
fn for_each_line_before(directory: &Path, end: Point, each: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let opened = files::if_intact(SegmentSource::open(directory, end.segment))?.flatten();
    let Some(mut source) = opened else { return Ok(()) };
    let read_at = |out: &mut [u8], at: u64| {
        let room = usize::try_from(end.offset.saturating_sub(at)).unwrap_or(usize::MAX).min(out.len());
        source.read_at(&mut out[..room], at)
    };
    files::if_intact(pieces::for_each_line(read_at, each)).map(drop)
}
