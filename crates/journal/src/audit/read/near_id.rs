//! Search for the record with an id, near the time that is in the id.
//!
//! - The id of a request is a UUID of version 7 (RFC 9562, section 5.7): it begins with the time, and so tells the part
//!   of the journal that has the record.
//! - This is where to look first, and proves nothing: the clock may have been set between the id and the record, and a
//!   use that was carried on is elsewhere. What is not found here is searched everywhere.

use std::io;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::join::RecordScanner;
use super::stop::StopSignal;
use crate::audit::filter::Filter;
use crate::audit::format::id_text;
use crate::audit::format::line;
use crate::audit::format::record::Record;
use crate::audit::format::segment::{self, Block, Point};
use crate::audit::format::source::{self, Piece};
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::lookup;
use domain::clock::Micros;

/// Times between the id and the record, which are taken one after the other: usually, and at most. Within a second
/// there may be tens of megabytes.
const MARGINS: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];
/// Blocks of one segment that are read as they are; of more, those near the time are looked for.
const FEW: usize = 8;

/// Finds the record with the id of the filter, near the time of that id.
pub(crate) fn find(
    directory: &Path,
    live: Option<&LiveIndex>,
    filter: &Filter,
    stop: &StopSignal,
) -> io::Result<Vec<(Point, Record)>> {
    let Some(time) = filter.id.and_then(id_text::time_of) else { return Ok(Vec::new()) };
    let segments = segment::list(directory)?;
    let mut scan = RecordScanner::new(directory.to_owned(), segments.clone(), stop.clone());
    for margin in MARGINS {
        let since = time.before(margin);
        let until = time.after(margin);
        let window = Filter { since: Some(since), until: Some(until), ..*filter };
        let blocks = lookup::candidate_blocks(directory, live, &segments, &window);
        for of_segment in blocks.chunk_by(|one, next| one.segment == next.segment) {
            stop.check()?;
            for block in narrow(directory, of_segment, (since, until))? {
                let found = scan.read_records(*block, filter)?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
    }
    Ok(Vec::new())
}

/// The blocks of a segment for this time: uses are in it nearly in the order of their ids.
fn narrow<'a>(directory: &Path, blocks: &'a [Block], (since, until): (Micros, Micros)) -> io::Result<&'a [Block]> {
    if blocks.len() <= FEW {
        return Ok(blocks);
    }
    let mut piece = Piece::default();
    let from = first_after(directory, blocks, since, &mut piece)?;
    let to = first_after(directory, blocks, until, &mut piece)?;
    // The block before has what began after its first use.
    Ok(&blocks[from.saturating_sub(1)..to])
}

/// The first of the blocks whose first use began after a time, by its id.
fn first_after(directory: &Path, blocks: &[Block], time: Micros, piece: &mut Piece) -> io::Result<usize> {
    let mut from = 0;
    let mut to = blocks.len();
    while from < to {
        let middle = from.midpoint(to);
        source::read_block(directory, blocks[middle], piece)?;
        let first = line::split_lines(piece)
            .find_map(|(_, line)| line::event_id(line).map(Uuid::from_u128).and_then(id_text::time_of));
        if first.is_some_and(|first| first > time) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    Ok(from)
}
