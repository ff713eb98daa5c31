//! Hashes of any part of the tree, from the rows of closed segments and the lines of those segments of which
//! only a part is needed.

use std::io;
use std::path::Path;

use super::lines;
use super::nodes_file::NodesReader;
use crate::audit::format::segment::{self, Segment};
use tlog::hash;
use tlog::proof::Leaves;
use tlog::range::LeafRange;

/// Parts of the tree that are being put together, in the order of their leaves.
struct Parts {
    parts: Vec<(Leaves, LeafRange)>,
}

/// The runs of leaves of some parts of the tree that do not overlap, in the same order.
///
/// # Errors
/// When a segment is not there of which lines are needed, or the tree is shorter.
pub(crate) fn runs(directory: &Path, wanted: &[Leaves]) -> io::Result<Vec<LeafRange>> {
    let mut parts = Parts::new(wanted);
    let segments = segment::list(directory)?;
    let mut reader = NodesReader::open(directory)?;
    let mut at = 0;
    let mut number = segments.first().map_or(0, |first| first.number);
    while let Some(row) = reader.as_mut().map(NodesReader::next).transpose()?.flatten() {
        if !parts.add_run(&row.leaves) {
            parts.add_lines(directory, find(&segments, row.segment)?, at)?;
        }
        at = row.leaves.end();
        number = row.segment.saturating_add(1);
    }
    for segment in segments.iter().filter(|segment| segment.number >= number) {
        if at >= parts.end() {
            break;
        }
        at = parts.add_lines(directory, *segment, at)?;
    }
    parts.finish(wanted)
}

fn find(segments: &[Segment], number: u64) -> io::Result<Segment> {
    segments.iter().find(|segment| segment.number == number).copied().ok_or_else(|| lines::missing(number))
}

impl Parts {
    fn new(wanted: &[Leaves]) -> Self {
        let mut parts: Vec<_> = wanted.iter().map(|part| (part.clone(), LeafRange::new(part.start))).collect();
        parts.sort_by_key(|(part, _)| part.start);
        Self { parts }
    }

    /// The leaf after the last one that is needed.
    fn end(&self) -> u64 {
        self.parts.iter().map(|(part, _)| part.end).max().unwrap_or(0)
    }

    /// Adds the nodes of a run. Returns false, and adds none, when a part begins or ends inside of a node.
    fn add_run(&mut self, run: &LeafRange) -> bool {
        let fits = |node: &Leaves| {
            self.parts.iter().all(|(part, _)| {
                let is_inside = part.start <= node.start && node.end <= part.end;
                is_inside || node.end <= part.start || part.end <= node.start
            })
        };
        if !run.nodes().all(|(node, _)| fits(&node)) {
            return false;
        }
        for (node, hash) in run.nodes() {
            if let Some((_, found)) = self.parts.iter_mut().find(|(part, _)| part.contains(&node.start)) {
                found.push_node(&node, hash);
            }
        }
        true
    }

    /// Adds the lines of a segment, the first of which is this leaf. Returns the number of the next leaf.
    fn add_lines(&mut self, directory: &Path, segment: Segment, first: u64) -> io::Result<u64> {
        let mut at = first;
        lines::read_all(directory, segment, |line| {
            // Found again for each line: there are some forty parts at most.
            if let Some((_, found)) = self.parts.iter_mut().find(|(part, _)| part.contains(&at)) {
                found.push(hash::leaf(line));
            }
            at += 1;
        })?;
        Ok(at)
    }

    fn finish(self, wanted: &[Leaves]) -> io::Result<Vec<LeafRange>> {
        let whole = |part: &Leaves| {
            let found = self.parts.iter().find(|(of, _)| of == part).map(|(_, found)| found.clone());
            let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the audit journal has fewer lines");
            found.filter(|found| found.end() == part.end).ok_or_else(short)
        };
        wanted.iter().map(whole).collect()
    }
}
