//! Lines of a predecessor: the process that has handed the journal over, and still serves the requests
//! that it had in flight.
//!
//! - Its lines come through its spool ([`super::spool`]) and are appended to the journal under new numbers, each once,
//!   also when this process is killed in between: what is in the journal already is not appended again.
//! - Its uses stay open until their outcomes come. When it has ended, those without one are closed as aborted.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::damaged_tail;
use super::pending::PendingLines;
use super::spool::{self, SpoolHeader};
use super::writer::JournalWriter;
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Outcome;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::version;
use crate::audit::format::{decode, frame, segment};
use crate::audit::index::IndexedUse;
use crate::files;

/// Pause between two looks at a spool: a slot of the predecessor is free this much later here.
const INTERVAL: Duration = Duration::from_millis(5);

/// A predecessor, by its spool.
#[derive(Debug)]
pub(crate) struct Predecessor {
    path: PathBuf,
    file: File,
    /// The segment that was open at the hand-over.
    segment: u64,
    /// Bytes that were read.
    offset: u64,
    /// Lines that were read and not merged.
    lines: Vec<u8>,
    /// Uses that are open, or were.
    owned: FxHashSet<u128>,
    /// Whole lines with a wrong checksum: the end of a process that was killed is the beginning of one.
    damaged: u64,
    /// The process has not ended.
    pub(crate) is_alive: bool,
}

impl Predecessor {
    /// Finds the predecessors of a journal, and reads what they have written up to now.
    pub(crate) fn find_all(directory: &Path) -> io::Result<Vec<Self>> {
        spool::list(directory)?.into_iter().map(|(segment, path)| Self::open(segment, path)).collect()
    }

    fn open(segment: u64, path: PathBuf) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(&path)?;
        let is_alive = is_locked(&file)?;
        let mut found = Self {
            path,
            file,
            segment,
            offset: 0,
            lines: Vec::new(),
            owned: FxHashSet::default(),
            damaged: 0,
            is_alive,
        };
        found.read()?;
        // Without a whole first line, the process ended while it began to hand over, and wrote nothing else.
        if let Some(end) = found.lines.iter().position(|byte| *byte == b'\n') {
            let first: Vec<u8> = found.lines.drain(..=end).collect();
            // Of a damaged one, no use is known, and all are closed as aborted.
            if let Ok(SpoolHeader { version, open }) = serde_json::from_slice(&first) {
                version::check(version, found.path.display())?;
                found.owned = open.iter().map(uuid::Uuid::as_u128).collect();
            }
        }
        Ok(found)
    }

    /// Reads the whole lines that have come.
    fn read(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut new = vec![0; usize::try_from(length.saturating_sub(self.offset)).unwrap_or(0)];
        let filled = files::fill(&mut new, self.offset, |out, at| self.file.read_at(out, at))?;
        new.truncate(line::whole_length(&new[..filled]));
        self.offset += new.len() as u64;
        self.lines.append(&mut new);
        Ok(())
    }

    /// The uses and records among the unmerged lines that the journal has already.
    pub(crate) fn find_merged(&self, directory: &Path) -> io::Result<FxHashSet<u128>> {
        let sought: FxHashSet<u128> = begun(&self.lines).collect();
        let mut found = FxHashSet::default();
        if sought.is_empty() {
            return Ok(found);
        }
        let mut piece = Piece::default();
        for segment in segment::list_from(directory, self.segment)? {
            for block in segment::blocks(segment.number, 0, segment.length) {
                source::read_block(directory, block, &mut piece)?;
                found.extend(begun(&piece).filter(|id| sought.contains(id)));
            }
        }
        Ok(found)
    }

    /// Appends the lines that were read to the journal, without those in `merged`. Returns the uses that have ended.
    pub(crate) fn merge(&mut self, pending: &mut PendingLines, merged: &FxHashSet<u128>) -> Vec<u128> {
        let lines = std::mem::take(&mut self.lines);
        line::split_lines(&lines).filter_map(|(_, line)| self.merge_line(line, pending, merged)).collect()
    }

    /// Appends one line; returns the use that it ends.
    fn merge_line(&mut self, line: &[u8], pending: &mut PendingLines, merged: &FxHashSet<u128>) -> Option<u128> {
        if frame::verify_line(line).is_none() {
            // Sectors that the loss of power has taken are zeros.
            self.damaged += u64::from(!line.contains(&0));
            return None;
        }
        let kind = line::event_kind(line)?;
        let id = line::event_id(line)?;
        if kind == EventKind::Outcome {
            let outcome = decode::outcome_event(line)?;
            return pending.append_outcome(&outcome).then_some(id);
        }
        let body = frame::extract_body(line)?;
        let begun = decode::use_event(line)?;
        if kind == EventKind::Use {
            self.owned.insert(id);
        }
        match kind {
            _ if merged.contains(&id) => {}
            EventKind::Use => drop(pending.append_use(&body, OpenUse::from_event(&begun, 0))),
            EventKind::Record => drop(pending.append_record(&body, IndexedUse::from_event(&begun))),
            _ => {}
        }
        None
    }

    /// Returns whether a use is one of a process that has not ended.
    pub(crate) fn keeps_open(&self, id: u128) -> bool {
        self.is_alive && self.owned.contains(&id)
    }

    /// Removes the spool of a process that has ended, when all of it is in the journal. One with damaged lines is
    /// kept under another name.
    pub(crate) fn remove(&self, writer: &JournalWriter) {
        if self.damaged == 0 {
            return spool::remove(&self.path);
        }
        let kept = damaged_tail::set_spool_aside(writer, self.segment, &self.path, self.damaged);
        kept.unwrap_or_else(|error| {
            tracing::error!(%error, path = %self.path.display(),
                "cannot set the damaged spool of the last process aside");
        });
    }
}

/// The uses and records that begin in these lines.
fn begun(lines: &[u8]) -> impl Iterator<Item = u128> {
    let is_beginning = |kind| matches!(kind, EventKind::Use | EventKind::Record | EventKind::Carried);
    let begun = line::split_lines(lines).filter(move |(_, line)| line::event_kind(line).is_some_and(is_beginning));
    begun.filter_map(|(_, line)| line::event_id(line))
}

/// Returns whether another process has a lock on the file; otherwise this one has it now.
fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Appends what predecessors write, until they have ended, or the sender of `stop` is dropped.
pub(crate) fn follow(writer: &JournalWriter, mut predecessors: Vec<Predecessor>, stop: &Receiver<()>) {
    let mut is_failing = false;
    loop {
        predecessors.retain_mut(|predecessor| match follow_once(writer, predecessor) {
            Ok(has_ended) => !has_ended,
            // Nothing is lost: the lines are in the spool.
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    let path = predecessor.path.display();
                    tracing::warn!(%error, %path,
                        "cannot take over the audit lines of the last process yet; trying again");
                }
                true
            }
        });
        if predecessors.is_empty() || stop.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Returns whether the predecessor has ended and all its lines are in the journal.
fn follow_once(writer: &JournalWriter, predecessor: &mut Predecessor) -> io::Result<bool> {
    // Before the last lines are read.
    if predecessor.is_alive {
        predecessor.is_alive = is_locked(&predecessor.file)?;
    }
    predecessor.read()?;
    let mut pending = writer.lock_pending();
    let before = pending.events();
    let mut ended = predecessor.merge(&mut pending, &FxHashSet::default());
    let aborted = if predecessor.is_alive { Vec::new() } else { abort_rest(&mut pending, predecessor) };
    ended.extend(&aborted);
    writer.metrics.backlog.add(pending.events() - before);
    writer.wake_committer(&mut pending);
    drop(pending);
    if !aborted.is_empty() {
        let uses = aborted.len();
        tracing::warn!(
            requests = uses,
            "the last process was killed, or crashed: recorded as aborted the requests that it left open"
        );
    }
    writer.predecessor_uses.end(&ended);
    if predecessor.is_alive {
        return Ok(false);
    }
    writer.flush(&mut writer.lock_segment())?;
    predecessor.remove(writer);
    tracing::info!("the last process has ended, and all its audit records are in the journal");
    Ok(true)
}

/// Closes the uses of a process that has ended without their outcomes.
fn abort_rest(pending: &mut PendingLines, predecessor: &mut Predecessor) -> Vec<u128> {
    let owned = std::mem::take(&mut predecessor.owned);
    let open = owned.into_iter().filter_map(|id| pending.open.get(&id).copied()).collect::<Vec<_>>();
    let open = pending.leave_changes(open);
    for open in &open {
        pending.append_outcome(&OutcomeEvent::bare(open.id, Outcome::Aborted));
    }
    open.iter().map(|open| open.id.as_u128()).collect()
}
