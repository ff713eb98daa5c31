//! The replay at start: which numbered uses the journal holds since a time.

use std::io;
use std::path::Path;

use super::Seen;
use super::event::{Header, Kind, Open};
use super::frame;
use super::segment::{self, Block};
use crate::clock::Micros;

/// The numbered uses at or after `since`, oldest first.
pub(super) fn since(directory: &Path, since: Micros) -> io::Result<Vec<Seen>> {
    let segments = segment::list(directory)?;
    let mut seen = Vec::new();
    let mut piece = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        // All that a segment holds was written before the next one was created.
        let next = segments.get(i + 1).map(|next| created(directory, next.number)).transpose()?.flatten();
        if next.is_some_and(|next| next < since) {
            continue;
        }
        for block in segment::blocks(segment.number, 0, segment.length) {
            segment::read(directory, block, &mut piece)?;
            seen.extend(frame::lines(&piece).filter_map(|(_, line)| numbered(line)).filter(|seen| seen.time >= since));
        }
    }
    Ok(seen)
}

fn numbered(line: &[u8]) -> Option<Seen> {
    matches!(frame::kind(line)?, Kind::Use | Kind::Record).then_some(())?;
    frame::check(line)?;
    let open: Open = serde_json::from_slice(line).ok()?;
    Some(Seen { key: open.key_id?, time: open.time, number: open.number? })
}

/// When a segment was created, by its header.
fn created(directory: &Path, segment: u64) -> io::Result<Option<Micros>> {
    let mut piece = Vec::new();
    segment::read(directory, Block { segment, start: 0, end: 1 }, &mut piece)?;
    let line = frame::lines(&piece).next();
    Ok(line.and_then(|(_, line)| serde_json::from_slice::<Header<'_>>(line).ok()).map(|header| header.created))
}
