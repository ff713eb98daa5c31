//! Check of a journal against checkpoints of its tree: finds every removal, change, insertion and reordering of lines
//! that a checkpoint covers. With a copy that was kept elsewhere, also by those who can write all of the machine.
//!
//! - The lines of all segments are hashed again. Of segments that retention has removed, the kept hashes are used: they
//!   cannot be wrong if the root is right. Their lines are proven to have been there; what they said is gone.
//! - A checkpoint that ends inside of a removed segment cannot be compared. That is a problem when it is the last one
//!   of the copies, and counted otherwise.
//! - The last checkpoint in each segment is compared, too: they tell where the first difference is, and reach beyond
//!   the old one as far as the signing key was safe.
//! - All copies are compared: a journal that was put back to an earlier state, and has grown again, has the last of
//!   them and lacks those that were made in between.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::copies::CheckpointCopies;
use super::verify_report::Defect;
use crate::audit::format::segment::{self, Segment};
use crate::audit::format::segment_event::CheckpointSeal;
use crate::audit::tree::lines;
use crate::audit::tree::nodes_file::{self, NodesReader, SegmentNodes};
use crate::files;
use domain::counted::Counted;
use tlog::checkpoint::{Checkpoint, SignedCheckpoint};
use tlog::hash::{self, Hash};
use tlog::key::PublicKey;
use tlog::range::LeafRange;

/// Attempts while retention removes segments that are being read.
const ATTEMPTS: u32 = 5;

/// The last checkpoint in each segment, with its line.
pub(crate) type OwnCheckpoints = BTreeMap<u64, (u64, CheckpointSeal<'static>)>;

/// Result of a check against checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TreeReport {
    /// Name of the tree.
    pub origin: String,
    /// Checkpoints that were given.
    pub checkpoints: u64,
    /// Checkpoints of other trees that were given, and left out.
    pub other_trees: u64,
    /// Lines that the last checkpoint covers.
    pub covered: u64,
    /// Checkpoints among them that end inside of a segment that was removed. A later one covers the same lines.
    pub not_comparable: u64,
    /// Lines of the journal, with those of removed segments.
    pub lines: u64,
    /// Segments that were removed, whose hashes are kept, and their lines. It is proven that they were
    /// there, not what they said.
    pub removed_segments: u64,
    /// Lines in them.
    pub removed_lines: u64,
    /// Lines up to which the journal is as all checkpoints say: at least `covered` when there are no problems.
    pub proven: u64,
    /// Defects that were found.
    pub problems: Vec<Defect>,
}

/// The checkpoints that a journal is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) copies: &'a CheckpointCopies,
    /// Those of the journal itself.
    pub(crate) own: &'a OwnCheckpoints,
    /// Their key; without one, their signatures are not verified.
    pub(crate) key: Option<&'a PublicKey>,
}

/// A size at which the root is compared.
struct Target {
    size: u64,
    root: Hash,
    /// Segment and line of a checkpoint of the journal; `None` for a copy.
    place: Option<(u64, u64)>,
}

/// A check in progress.
struct TreeCheck {
    report: TreeReport,
    /// Lines up to the segment that is being read.
    whole: LeafRange,
    /// Those of this segment.
    segment: LeafRange,
    /// By size, the next one last.
    targets: Vec<Target>,
    has_difference: bool,
    /// Copies that differ, or cover more than there is.
    differing: u64,
}

/// Checks the journal in a directory against checkpoints whose signatures were verified.
pub(crate) fn verify_tree(directory: &Path, expected: Expected<'_>, in_use: bool) -> io::Result<TreeReport> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let checked = check(directory, expected, in_use);
        let is_gone = checked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !(in_use && is_gone && attempts < ATTEMPTS) {
            return checked;
        }
    }
}

fn check(directory: &Path, expected: Expected<'_>, in_use: bool) -> io::Result<TreeReport> {
    let segments = segment::list(directory)?;
    let mut check = TreeCheck::new(expected);
    let mut rows = NodesReader::open(directory)?;
    if let Some(rows) = rows.as_ref().filter(|rows| rows.origin != expected.copies.origin()) {
        check.report_at((0, 0), format!("the kept hashes are of another tree, `{}`", rows.origin));
    }
    let first = segments.first().map_or(u64::MAX, |first| first.number);
    let mut row = check.add_removed(rows.as_mut(), first)?;
    for segment in &segments {
        check.add_segment(directory, *segment)?;
        let is_of_segment = row.as_ref().is_some_and(|row| row.segment == segment.number);
        let kept = if is_of_segment { row.take() } else { None };
        if kept.is_some_and(|kept| kept.leaves != check.segment) {
            check.report_at((segment.number, 0), "the kept hashes are not those of the lines".to_owned());
        }
        check.join();
        if row.is_none() {
            row = rows.as_mut().map(NodesReader::next).transpose()?.flatten();
        }
    }
    while row.is_some() {
        row = rows.as_mut().map(NodesReader::next).transpose()?.flatten();
    }
    // A row may be half written while the journal is in use.
    if !in_use && nodes_file::length(directory)? != rows.map_or(0, |rows| rows.good) {
        check.report_at((0, 0), "the file of the kept hashes is damaged".to_owned());
    }
    Ok(check.finish())
}

impl TreeCheck {
    fn new(Expected { copies, own, key }: Expected<'_>) -> Self {
        let report = TreeReport {
            origin: copies.origin().to_owned(),
            checkpoints: copies.count(),
            other_trees: copies.other_trees(),
            covered: copies.largest(),
            ..TreeReport::default()
        };
        let none = LeafRange::new(0);
        let targets = copies.iter().map(|(size, root)| Target { size, root, place: None }).collect();
        let mut check =
            Self { report, whole: none.clone(), segment: none, targets, has_difference: false, differing: 0 };
        for size in copies.contradictions() {
            check.report_at((0, 0), format!("the key has signed two pasts: two checkpoints of {size} lines differ"));
        }
        for (segment, (line, seal)) in own {
            check.add_own((*segment, *line), seal, copies.origin(), key);
        }
        check.targets.sort_by_key(|target| std::cmp::Reverse(target.size));
        check
    }

    /// Adds a checkpoint of the journal, unless it is one of another tree.
    fn add_own(&mut self, place: (u64, u64), seal: &CheckpointSeal<'_>, origin: &str, key: Option<&PublicKey>) {
        let Some(signed) = SignedCheckpoint::parse(&seal.checkpoint) else {
            return self.report_at(place, "the line of a checkpoint has none".to_owned());
        };
        if signed.checkpoint.origin != origin {
            return;
        }
        if key.is_some_and(|key| signed.note.verified(key).is_none()) {
            return self.report_at(place, "the checkpoint is not signed by the key".to_owned());
        }
        let Checkpoint { size, root, .. } = signed.checkpoint;
        self.targets.push(Target { size, root, place: Some(place) });
    }

    /// Adds the hashes of the segments before the first one that is there. Returns the row after them.
    fn add_removed(&mut self, rows: Option<&mut NodesReader>, first: u64) -> io::Result<Option<SegmentNodes>> {
        let Some(rows) = rows else { return Ok(None) };
        let mut last = None;
        while let Some(row) = rows.next()? {
            if row.segment >= first {
                return Ok(Some(row));
            }
            // Sizes between two ends cannot be compared: the lines are gone.
            let inside = self
                .targets
                .extract_if(.., |target| target.size < row.leaves.end() && target.size > row.leaves.begin());
            let copies: Vec<u64> = inside.filter(|target| target.place.is_none()).map(|target| target.size).collect();
            self.report.not_comparable += copies.len() as u64;
            let has_last = copies.contains(&self.report.covered);
            self.whole.extend(&row.leaves);
            self.segment = LeafRange::new(self.whole.end());
            self.report.removed_segments += 1;
            self.report.removed_lines = self.whole.end();
            last = Some(row.segment);
            if has_last {
                let what = "the checkpoint ends inside of this segment, which was removed: the journal cannot be \
                            compared with it; use a later checkpoint, or a copy of the segment";
                self.report_at((row.segment, 0), what.to_owned());
            }
            self.compare();
        }
        if last.is_some_and(|last| last.saturating_add(1) < first && first != u64::MAX) {
            self.report_at((first, 0), "the hashes of the segments before this one are not kept".to_owned());
        }
        Ok(None)
    }

    fn add_segment(&mut self, directory: &Path, segment: Segment) -> io::Result<()> {
        let read = lines::read_all(directory, segment, |line| {
            self.segment.push(hash::leaf(line));
            self.compare();
        });
        // Lines that cannot be read are missing in the tree, which then differs.
        if files::if_intact(read)?.is_none() {
            self.report_at((segment.number, 0), "the segment is damaged, and lines cannot be read".to_owned());
        }
        Ok(())
    }

    fn join(&mut self) {
        self.whole.extend(&self.segment);
        self.segment = LeafRange::new(self.whole.end());
    }

    /// Compares the root with those of the checkpoints at this size.
    fn compare(&mut self) {
        while self.targets.last().is_some_and(|target| target.size == self.segment.end()) {
            let Some(target) = self.targets.pop() else { return };
            let mut whole = self.whole.clone();
            whole.extend(&self.segment);
            if whole.root() != target.root {
                self.report_difference(&target);
            } else if self.differing == 0 {
                // Behind a copy that differs, the journal may be right by its own checkpoints: by
                // those of another past.
                self.report.proven = self.report.proven.max(target.size);
            }
        }
    }

    /// Reports the first difference, and that of the first copy.
    fn report_difference(&mut self, target: &Target) {
        let from = self.report.proven + 1;
        let size = target.size;
        match target.place {
            None => {
                self.differing += 1;
                if self.differing == 1 {
                    let what = "are not those of the checkpoint: lines were changed, removed, inserted or reordered";
                    self.report_at((0, 0), format!("lines {from} to {size} {what}"));
                }
            }
            Some(place) if !self.has_difference => {
                self.report_at(
                    place,
                    format!("lines {from} to {size} are not those of this checkpoint of the journal"),
                );
            }
            Some(_) => {}
        }
        self.has_difference = true;
    }

    fn finish(mut self) -> TreeReport {
        self.report.lines = self.whole.end();
        let lines = Counted(self.report.lines, "line");
        // The largest first: of the copies that cover more than there is, it alone is reported.
        let (copies, own): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.targets).into_iter().partition(|target| target.place.is_none());
        if let Some(largest) = copies.first() {
            self.report_at((0, 0), format!("the journal has {lines}, and the checkpoint covers {}", largest.size));
        }
        for target in own {
            let what = format!("the journal has {lines}, and this checkpoint of it covers {}", target.size);
            self.report_at(target.place.unwrap_or_default(), what);
        }
        self.differing += copies.len() as u64;
        if self.differing > 1 {
            let all = Counted(self.report.checkpoints, "checkpoint");
            self.report_at((0, 0), format!("{} of {all} are not those of this journal", self.differing));
        }
        self.report
    }

    fn report_at(&mut self, (segment, line): (u64, u64), what: String) {
        self.report.problems.push(Defect { segment, line, what });
    }
}
