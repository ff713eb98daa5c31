//! Queries of readers to the index.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::index_file::IndexFile;
use super::live_index::LiveIndex;
use super::usage_counts::UsageCounts;
use super::{database, usage_rows};
use crate::audit::filter::Filter;
use crate::audit::format::segment::{self, Block, Point, Segment};
use domain::identity::OrgId;
use domain::key::KeyId;

/// Blocks of a segment, and the offset up to which they are all that may hold records for a filter.
type Candidates = (Vec<Block>, u64);

/// Finds the blocks that may hold records for a filter, oldest first: those that the index of each segment names, and
/// everything that is not indexed.
pub(crate) fn candidate_blocks(
    directory: &Path,
    live: Option<&LiveIndex>,
    segments: &[Segment],
    filter: &Filter,
) -> Vec<Block> {
    // Asked before the files: a segment leaves the memory only when its file is there.
    let mut in_memory = live.map(|live| live.candidates(filter)).unwrap_or_default();
    let mut blocks = Vec::new();
    for segment in segments {
        let indexed = in_memory
            .remove(&segment.number)
            // Lines may have been written since the segments were listed.
            .map(|(blocks, end)| (blocks, end.min(segment.length)))
            .or_else(|| file_candidates(directory, segment, filter, live.is_some()))
            // An index that reaches further belongs to another journal.
            .filter(|(_, end)| *end <= segment.length);
        let (candidates, end) = indexed.unwrap_or_default();
        blocks.extend(candidates);
        blocks.extend(segment::blocks(segment.number, end, segment.length));
    }
    blocks
}

/// The candidates by the file of a segment's index; `None` when there is none that can be used. The process that writes
/// the journal finds a damaged one by itself, and replaces it.
fn file_candidates(directory: &Path, segment: &Segment, filter: &Filter, is_writer: bool) -> Option<Candidates> {
    let opened = IndexFile::open(directory, segment.number, segment.length);
    let found = opened.and_then(|file| file.map(|file| file.candidates(filter)).transpose());
    let blocks = found.unwrap_or_else(|error| {
        let number = segment.number;
        if is_writer {
            tracing::debug!(%error, segment = number,
                "the index of an audit segment cannot be read; reading the segment");
        } else {
            tracing::warn!(%error, segment = number,
                "the index of an audit segment cannot be read; reading the segment");
        }
        None
    });
    Some((blocks?, segment.length))
}

/// Loads the stored usage of some keys of an organization, with the counts from `first_hour` on, and the point up to
/// which it is counted. `None` when nothing is stored.
///
/// # Errors
/// If there is no index, or it is damaged; the caller then counts from the beginning.
pub(crate) fn load_usage(
    directory: &Path,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<Option<(UsageCounts, Point)>> {
    let Some(mut connection) = database::open_for_reading(directory)? else { return Ok(None) };
    // One transaction, so that rows and covered point belong together.
    let transaction = connection.transaction()?;
    let Some(point) = database::load_covered(&transaction)? else { return Ok(None) };
    Ok(Some((usage_rows::load(&transaction, org, keys, first_hour)?, point)))
}
