//! The Merkle tree of the journal that is being written: hashes the lines that have come, and tells when
//! a checkpoint is due.
//!
//! - Only lines that are on disk are given to it: a checkpoint never covers a line that the loss of power could take.
//! - It continues after a restart from the rows of closed segments; the open one is hashed again. The last published
//!   checkpoint is compared on the way: a journal that does not contain it gets no other one.
//! - Lines of checkpoints do not make another checkpoint due.

use std::io;
use std::path::{Path, PathBuf};

use crate::audit::format::segment::{self, Point, Segment};
use crate::audit::tree::nodes_file::{self, NodesReader, NodesWriter, SegmentNodes};
use crate::audit::tree::{lines, nodes, published};
use domain::counted::counted;
use tlog::checkpoint::Checkpoint;
use tlog::hash;
use tlog::range::LeafRange;

/// Lines after which a checkpoint is due while there is traffic.
const MAX_LINES: u64 = 10_000;

/// Reason why the tree cannot be continued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("the lines of the audit journal cannot be read, or their hashes cannot be written")]
    Io(#[from] io::Error),
    #[error("segment {0} of the audit journal is not there, and its lines were not hashed")]
    Missing(u64),
    #[error("the audit journal does not contain the {} of its last checkpoint as they were", counted(.0, "line"))]
    Changed(u64),
}

/// The tree at a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct TreeHead {
    pub(crate) checkpoint: Checkpoint,
    /// All lines.
    pub(crate) whole: LeafRange,
    /// Those since the checkpoint before.
    pub(crate) since: LeafRange,
}

/// The tree of a journal.
pub(crate) struct JournalTree {
    directory: PathBuf,
    origin: String,
    file: NodesWriter,
    /// All lines but those in `chunk`.
    whole: LeafRange,
    /// Those of the segment at `at`.
    segment: LeafRange,
    /// Those since the last checkpoint.
    since: LeafRange,
    /// The newest lines: they are joined to the others as a run, so that each node is hashed once.
    chunk: LeafRange,
    /// Everything before this point is hashed.
    at: Point,
    /// Lines since the last checkpoint that are no checkpoints.
    news: u64,
    /// The checkpoint that the last process has published, until its lines are hashed.
    published: Option<Checkpoint>,
}

impl JournalTree {
    /// Continues the tree of a journal whose open segment is `current`, or begins one.
    pub(crate) fn open(directory: &Path, origin: &str, current: u64) -> Result<Self, TreeError> {
        let mut found = NodesReader::open(directory)?.filter(|reader| reader.origin == origin);
        let hashed = found.as_mut().map(|reader| read_hashed(directory, reader, current)).transpose()?;
        let (whole, segment, good) = hashed.unwrap_or_else(|| (LeafRange::new(0), 0, 0));
        let file = match found {
            Some(_) => NodesWriter::resume(directory, good)?,
            None => NodesWriter::create(directory, origin)?,
        };
        let published = published::read(directory, published::SIGNED)?.map(|signed| signed.checkpoint);
        let published = published.filter(|published| published.origin == origin);
        let (hashed, published) = published.map_or((None, None), |published| {
            if published.size <= whole.end() { (Some(published), None) } else { (None, Some(published)) }
        });
        hashed.map_or(Ok(()), |hashed| check_hashed(directory, &hashed))?;
        let empty = LeafRange::new(whole.end());
        Ok(Self {
            directory: directory.to_owned(),
            origin: origin.to_owned(),
            file,
            whole,
            segment: empty.clone(),
            since: empty.clone(),
            chunk: empty,
            at: Point { segment, offset: 0 },
            news: 0,
            published,
        })
    }

    /// The oldest segment whose lines are not hashed.
    pub(crate) fn first_unhashed(&self) -> u64 {
        self.at.segment
    }

    /// Hashes the lines up to `end`, and calls `publish` where a checkpoint is due. `proceed` is asked now and then.
    pub(crate) fn advance(
        &mut self,
        end: Point,
        proceed: &impl Fn() -> bool,
        publish: &mut impl FnMut(TreeHead),
    ) -> Result<(), TreeError> {
        for segment in self.new_segments(end)? {
            if !self.hash_segment(segment, end, proceed, publish)? {
                return Ok(());
            }
            if segment.number < end.segment {
                self.close_segment(segment.number);
            }
        }
        self.join();
        if let Some(published) = &self.published
            && self.whole.end() < published.size
        {
            return Err(TreeError::Changed(published.size));
        }
        self.publish_news(publish);
        Ok(())
    }

    /// The segments with lines that may not be hashed, oldest first.
    fn new_segments(&mut self, end: Point) -> Result<Vec<Segment>, TreeError> {
        let listed = segment::list_from(&self.directory, self.at.segment)?;
        let mut segments: Vec<Segment> = listed.into_iter().filter(|segment| segment.number <= end.segment).collect();
        if let Some(first) = segments.first().filter(|_| self.at.segment == 0) {
            self.at.segment = first.number;
        }
        for (expected, segment) in (self.at.segment..).zip(&mut segments) {
            if segment.number != expected {
                return Err(TreeError::Missing(expected));
            }
            if segment.number == end.segment {
                segment.length = end.offset;
            }
        }
        Ok(segments)
    }

    /// Returns false when there was no time.
    fn hash_segment(
        &mut self,
        segment: Segment,
        end: Point,
        proceed: &impl Fn() -> bool,
        publish: &mut impl FnMut(TreeHead),
    ) -> Result<bool, TreeError> {
        let directory = self.directory.clone();
        let from = if self.at.segment == segment.number { self.at.offset } else { 0 };
        // A journal that is older than its tree gets one checkpoint for all that is there.
        let is_live = segment.number + 1 >= end.segment;
        lines::for_each(&directory, segment, from, proceed, |offset, line| {
            self.at = Point { segment: segment.number, offset: offset + line.len() as u64 + 1 };
            self.add_line(line)?;
            if is_live && self.news >= MAX_LINES {
                self.join();
                self.publish_news(publish);
            }
            Ok(())
        })
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), TreeError> {
        self.chunk.push(hash::leaf(line));
        let Some(published) = self.published.take_if(|published| self.chunk.end() >= published.size) else {
            // Lines that a checkpoint covers already need no other one.
            self.news += u64::from(self.published.is_none() && !lines::is_checkpoint(line));
            return Ok(());
        };
        self.join();
        self.since = LeafRange::new(self.whole.end());
        let is_same = (self.whole.end(), self.whole.root()) == (published.size, published.root);
        if is_same { Ok(()) } else { Err(TreeError::Changed(published.size)) }
    }

    /// Joins the newest lines to the others.
    fn join(&mut self) {
        let next = LeafRange::new(self.chunk.end());
        let chunk = std::mem::replace(&mut self.chunk, next);
        [&mut self.whole, &mut self.segment, &mut self.since].into_iter().for_each(|run| run.extend(&chunk));
    }

    fn publish_news(&mut self, publish: &mut impl FnMut(TreeHead)) {
        if std::mem::take(&mut self.news) == 0 {
            return;
        }
        let since = std::mem::replace(&mut self.since, LeafRange::new(self.whole.end()));
        let origin = self.origin.clone();
        let size = self.whole.end();
        let root = self.whole.root();
        publish(TreeHead { checkpoint: Checkpoint { origin, size, root }, whole: self.whole.clone(), since });
    }

    /// Keeps the hashes of a segment that is closed.
    fn close_segment(&mut self, number: u64) {
        self.join();
        let leaves = std::mem::replace(&mut self.segment, LeafRange::new(self.whole.end()));
        self.at = Point { segment: number + 1, offset: 0 };
        // On a full disk, the next segment brings it along. Until then the segments themselves have what is in it.
        self.file.append(&SegmentNodes { segment: number, leaves }).unwrap_or_else(|error| {
            tracing::warn!(%error, segment = number, "cannot write the hashes of a closed audit segment yet");
        });
    }
}

/// Compares a checkpoint that closed segments cover, as when the file of a later one was lost with the power.
fn check_hashed(directory: &Path, published: &Checkpoint) -> Result<(), TreeError> {
    match nodes::runs(directory, std::slice::from_ref(&(0..published.size))) {
        Ok(runs) if runs.iter().all(|run| run.root() == published.root) => Ok(()),
        Ok(_) => Err(TreeError::Changed(published.size)),
        // Retention has removed the segment in which it ends.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The hashes of the segments before the open one, the segment after them, and the bytes of their rows.
fn read_hashed(directory: &Path, reader: &mut NodesReader, current: u64) -> Result<(LeafRange, u64, u64), TreeError> {
    let mut whole = LeafRange::new(0);
    let mut segment = 0;
    let mut good = reader.good;
    loop {
        match reader.next()? {
            // The last segment is open again when later ones were lost.
            Some(row) if row.segment >= current => break,
            Some(row) => {
                whole.extend(&row.leaves);
                (segment, good) = (row.segment.saturating_add(1), reader.good);
            }
            None => {
                nodes_file::keep_damaged(directory, good)?;
                break;
            }
        }
    }
    Ok((whole, segment, good))
}
