//! Check of a journal with what was derived from it: the indexes of its segments, and its own checkpoints.
//!
//! - Its own checkpoints tell that a line was changed or removed whose checksum and number were made right again, also
//!   in the open segment, which has no seal yet. Who can write everything on the machine can remove them, too: against
//!   that, a copy helps ([`super::verify_tree`]).
//! - They are compared while the hashes of removed segments are kept.

use std::io;
use std::path::Path;

use super::copies::CheckpointCopies;
use super::verify;
use super::verify_report::{Defect, VerifyReport};
use super::verify_tree::{self, Expected, OwnCheckpoints, TreeReport};
use crate::audit::format::segment;
use crate::audit::index::check;
use crate::audit::tree::nodes_file::NodesReader;
use crate::audit::tree::published;
use tlog::checkpoint::SignedCheckpoint;
use tlog::key::PublicKey;

/// Checks a journal and its indexes, and compares it with its own checkpoints.
pub(crate) fn verify(directory: &Path) -> io::Result<VerifyReport> {
    let in_use = segment::is_locked(directory);
    // Before the lines are read: it covers no line that is not there.
    let latest = published::read(directory, published::SIGNED)?;
    let (mut report, own) = verify_lines(directory, in_use)?;
    let Some(copies) = own_copies(directory, latest, &own)? else { return Ok(report) };
    let tree = verify_tree::verify_tree(directory, Expected { copies: &copies, own: &own, key: None }, in_use)?;
    tree.problems.into_iter().for_each(|problem| report.add(problem));
    Ok(report)
}

/// As [`verify`], and compares the journal with copies of its checkpoints. The key must have signed its own ones.
pub(crate) fn verify_copies(
    directory: &Path,
    copies: &CheckpointCopies,
    key: &PublicKey,
) -> io::Result<(VerifyReport, TreeReport)> {
    let in_use = segment::is_locked(directory);
    let (report, own) = verify_lines(directory, in_use)?;
    let tree = verify_tree::verify_tree(directory, Expected { copies, own: &own, key: Some(key) }, in_use)?;
    Ok((report, tree))
}

/// Checks the lines, and the indexes that were made of them.
fn verify_lines(directory: &Path, in_use: bool) -> io::Result<(VerifyReport, OwnCheckpoints)> {
    let (mut report, own) = verify::verify(directory)?;
    for (segment, what) in check::find_wrong(directory, &segment::list(directory)?, in_use)? {
        report.add(Defect { segment, line: 0, what: what.to_owned() });
    }
    Ok((report, own))
}

/// The checkpoint of the journal's present tree that was published last. `None` when there is no tree, or it cannot be
/// compared: the hashes of removed segments are not kept.
fn own_copies(
    directory: &Path,
    latest: Option<SignedCheckpoint>,
    own: &OwnCheckpoints,
) -> io::Result<Option<CheckpointCopies>> {
    let mut rows = NodesReader::open(directory)?;
    let latest = latest.map(|signed| signed.checkpoint);
    let last_own = own.values().next_back().and_then(|(_, seal)| SignedCheckpoint::parse(&seal.checkpoint));
    let origin = rows.as_ref().map(|rows| rows.origin.clone()).or_else(|| latest.as_ref().map(|it| it.origin.clone()));
    let Some(origin) = origin.or_else(|| last_own.map(|signed| signed.checkpoint.origin)) else { return Ok(None) };
    let first = segment::list_files(directory)?.first().map_or(0, |first| first.number);
    let mut last = None;
    while let Some(row) = rows.as_mut().map(NodesReader::next).transpose()?.flatten() {
        if row.segment >= first {
            last = Some(first.saturating_sub(1));
            break;
        }
        last = Some(row.segment);
    }
    // Without any row, the tree begins with the first segment that is there.
    let is_kept = last.map_or(rows.is_some() || first == 1, |last| last.saturating_add(1) >= first);
    let latest = latest.filter(|latest| latest.origin == origin);
    Ok(is_kept.then(|| CheckpointCopies::of_tree(origin, latest)))
}
