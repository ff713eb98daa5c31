//! Inclusion proofs of records: that the lines of a record are leaves of the tree that a checkpoint is of.
//!
//! A record has one line or, when its use ended later than it began, several: each has a proof of its own, in the form
//! of C2SP tlog-proof. A verifier needs the line, the proof and the public key, and nothing else.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::audit::filter::Filter;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::{self, Segment};
use crate::audit::index::lookup;
use crate::audit::tree::nodes_file::NodesReader;
use crate::audit::tree::{lines, nodes};
use tlog::checkpoint::{Checkpoint, SignedCheckpoint};
use tlog::{hash, proof};

/// First line of a proof of C2SP.
pub(crate) const HEADER: &str = "c2sp.org/tlog-proof@v1\n";

/// Proof that the lines of a record are in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordProof {
    /// The record.
    pub id: Uuid,
    /// The lines that the checkpoint covers, in their order.
    pub lines: Vec<LineProof>,
    /// Lines of the record that came after the checkpoint.
    pub later_lines: usize,
    /// The checkpoint, a signed note.
    pub checkpoint: String,
}

/// Proof that a line is in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineProof {
    /// The number of the line in the tree, from 0.
    pub index: u64,
    /// The segment that it is in.
    pub segment: u64,
    /// The line, without its newline.
    pub line: String,
    /// Hashes from the line's sibling upwards, in base64.
    pub hashes: Vec<String>,
}

/// Reason why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The text is no checkpoint.
    #[error("this is no checkpoint")]
    Checkpoint,
    /// No line has the id.
    #[error("there is no record with this id")]
    Unknown,
    /// The checkpoint covers no line of the record.
    #[error("the checkpoint does not cover the record; there is a new one every second")]
    NotCovered,
    /// The journal is not that of the checkpoint.
    #[error("the journal does not match the checkpoint; `keygate audit verify --checkpoint` tells more")]
    Mismatch,
    /// The journal cannot be read, or a segment is missing.
    #[error("the lines or the hashes of the journal cannot be read")]
    Io(#[from] io::Error),
}

/// A line of a record.
struct FoundLine {
    segment: u64,
    /// Number of the line in the segment, from 0.
    number: u64,
    line: Vec<u8>,
}

/// Proves that the lines of a record are in the journal in a directory, by a checkpoint whose
/// signature is not verified.
pub(crate) fn prove(directory: &Path, id: Uuid, note: &str) -> Result<RecordProof, ProveError> {
    let signed = SignedCheckpoint::parse(note).ok_or(ProveError::Checkpoint)?;
    let segments = segment::list(directory)?;
    let found = find_lines(directory, &segments, id)?;
    if found.is_empty() {
        return Err(ProveError::Unknown);
    }
    let firsts = first_leaves(directory, &segments, &found)?;
    let mut proofs = Vec::new();
    let mut later_lines = 0;
    for line in found {
        let first = firsts.get(&line.segment).ok_or_else(|| lines::missing(line.segment))?;
        let index = first + line.number;
        if index < signed.checkpoint.size {
            proofs.push(prove_line(directory, line, index, &signed.checkpoint)?);
        } else {
            later_lines += 1;
        }
    }
    if proofs.is_empty() {
        return Err(ProveError::NotCovered);
    }
    Ok(RecordProof { id, lines: proofs, later_lines, checkpoint: signed.note.to_string() })
}

fn prove_line(directory: &Path, found: FoundLine, index: u64, of: &Checkpoint) -> Result<LineProof, ProveError> {
    let parts = proof::inclusion(index, of.size);
    let runs = nodes::runs(directory, &parts)?;
    let roots = runs.iter().map(|run| run.subtree(run.begin(), run.end()));
    let hashes = roots.collect::<Option<Vec<_>>>().ok_or(ProveError::Mismatch)?;
    if !proof::verify_inclusion(hash::leaf(&found.line), index, of.size, &hashes, &of.root) {
        return Err(ProveError::Mismatch);
    }
    let line = String::from_utf8(found.line).map_err(|_| ProveError::Mismatch)?;
    Ok(LineProof { index, segment: found.segment, line, hashes: hashes.iter().map(hash::encode).collect() })
}

/// Finds the lines of a record, oldest first.
fn find_lines(directory: &Path, segments: &[Segment], id: Uuid) -> io::Result<Vec<FoundLine>> {
    let near = likely_segments(directory, segments, id);
    let mut found = find_in(directory, segments, id, |segment| near.contains(&segment))?;
    if found.is_empty() {
        found = find_in(directory, segments, id, |_| true)?;
    }
    Ok(found)
}

/// The segments that may have the id, by the index.
fn likely_segments(directory: &Path, segments: &[Segment], id: Uuid) -> FxHashSet<u64> {
    let filter = Filter { id: Some(id), ..Filter::default() };
    lookup::candidate_blocks(directory, None, segments, &filter).into_iter().map(|block| block.segment).collect()
}

/// Reads the selected segments, and those after the first line of the record up to the line of its end.
fn find_in(
    directory: &Path,
    segments: &[Segment],
    id: Uuid,
    select: impl Fn(u64) -> bool,
) -> io::Result<Vec<FoundLine>> {
    let mut found = Vec::new();
    let mut has_ended = false;
    for segment in segments {
        if has_ended || (found.is_empty() && !select(segment.number)) {
            continue;
        }
        let mut number = 0;
        lines::read_all(directory, *segment, |line| {
            if line::event_id(line) == Some(id.as_u128()) {
                has_ended |= matches!(line::event_kind(line), Some(EventKind::Outcome | EventKind::Record));
                found.push(FoundLine { segment: segment.number, number, line: line.to_vec() });
            }
            number += 1;
        })?;
    }
    Ok(found)
}

/// The first leaf of each segment, as far as the segments of these lines.
fn first_leaves(directory: &Path, segments: &[Segment], found: &[FoundLine]) -> io::Result<BTreeMap<u64, u64>> {
    let last = found.iter().map(|line| line.segment).max().unwrap_or(0);
    let mut firsts = BTreeMap::new();
    let mut at = 0;
    let mut next = segments.first().map_or(0, |first| first.number);
    let mut rows = NodesReader::open(directory)?;
    while let Some(row) = rows.as_mut().map(NodesReader::next).transpose()?.flatten() {
        firsts.insert(row.segment, row.leaves.begin());
        at = row.leaves.end();
        next = row.segment.saturating_add(1);
    }
    // Segments that have no row yet: the open one, mostly.
    for segment in segments.iter().filter(|segment| segment.number >= next && segment.number <= last) {
        firsts.insert(segment.number, at);
        if segment.number < last {
            lines::read_all(directory, *segment, |_| at += 1)?;
        }
    }
    Ok(firsts)
}

impl Display for RecordProof {
    /// The proof of each line in the form of C2SP tlog-proof, with the line as its extra data. An empty
    /// line separates them.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, LineProof { index, line, hashes, .. }) in self.lines.iter().enumerate() {
            let separator = if number > 0 { "\n" } else { "" };
            writeln!(f, "{separator}{HEADER}extra {}\nindex {index}", STANDARD.encode(line))?;
            hashes.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
            write!(f, "\n{}", self.checkpoint)?;
        }
        Ok(())
    }
}
