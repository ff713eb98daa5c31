//! Search for the record with an id, near the time that is in the id.
//!
//! - The id of a request is a UUID of version 7 (RFC 9562, section 5.7): it begins with the time, and so tells the part of the
//!   journal that has the record.
//! - This is where to look first, and proves nothing: the clock may have been set between the id and the record, and a use that
//!   was carried on is elsewhere. What is not found here is searched everywhere.

use std::io;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::join::RecordScanner;
use super::stop::StopSignal;
use crate::audit::filter::Filter;
use crate::audit::format::line;
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, Block, Point};
use crate::audit::format::source::{self, Piece};
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::lookup;
use crate::clock::Micros;

/// Time between the id and the record at most: both are taken when the request begins.
const MARGIN: Duration = Duration::from_secs(1);
/// Blocks of one segment that are read as they are; of more, those near the time are looked for.
const FEW: usize = 8;

/// Finds the record with the id of the filter, near the time of that id.
pub(crate) fn find(
    directory: &Path,
    live: Option<&LiveIndex>,
    filter: &Filter,
    stop: &StopSignal,
) -> io::Result<Vec<(Point, Record)>> {
    let Some(time) = filter.id.and_then(|id| time_of(id.as_u128())) else { return Ok(Vec::new()) };
    let window = Filter { since: Some(time.before(MARGIN)), until: Some(time.after(MARGIN)), ..*filter };
    let segments = segment::list(directory)?;
    let blocks = lookup::candidate_blocks(directory, live, &segments, &window);
    let mut scan = RecordScanner::new(directory.to_owned(), segments, stop.clone());
    for of_segment in blocks.chunk_by(|one, next| one.segment == next.segment) {
        stop.check()?;
        for block in narrow(directory, of_segment, time)? {
            let found = scan.read_records(*block, filter)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
    Ok(Vec::new())
}

/// The time in an id; `None` when it is of another version.
fn time_of(id: u128) -> Option<Micros> {
    let (seconds, nanoseconds) = Uuid::from_u128(id).get_timestamp()?.to_unix();
    Some(Micros(seconds.saturating_mul(1_000_000).saturating_add(u64::from(nanoseconds) / 1000)))
}

/// The blocks of a segment near a time: uses are in it nearly in the order of their ids.
fn narrow<'a>(directory: &Path, blocks: &'a [Block], time: Micros) -> io::Result<&'a [Block]> {
    if blocks.len() <= FEW {
        return Ok(blocks);
    }
    let mut piece = Piece::default();
    let from = first_after(directory, blocks, time.before(MARGIN), &mut piece)?;
    let to = first_after(directory, blocks, time.after(MARGIN), &mut piece)?;
    // The block before has what began after its first use.
    Ok(&blocks[from.saturating_sub(1)..to])
}

/// The first of the blocks whose first use began after a time, by its id.
fn first_after(directory: &Path, blocks: &[Block], time: Micros, piece: &mut Piece) -> io::Result<usize> {
    let (mut from, mut to) = (0, blocks.len());
    while from < to {
        let middle = from.midpoint(to);
        source::read_block(directory, blocks[middle], piece)?;
        let first = line::split_lines(piece).find_map(|(_, line)| line::event_id(line).and_then(time_of));
        if first.is_some_and(|first| first > time) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    Ok(from)
}
