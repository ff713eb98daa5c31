//! The checkpoint thread: hashes the lines that are on disk, once a second, and publishes signed checkpoints.
//!
//! - No request waits for it, and it takes no lock for longer than reading a position or appending a line.
//! - A checkpoint goes to a file beside the segments, to the journal as a line, and to the witnesses.
//! - When the tree cannot be continued, no further checkpoint is signed: one over another past would be worse than
//!   none. Records are written as ever.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::journal_tree::{JournalTree, TreeError, TreeHead};
use super::signer::{self, CheckpointSigner};
use super::timed_sync;
use super::witness::Witnesses;
use super::writer::JournalWriter;
use crate::audit::format::segment::Point;
use crate::audit::format::segment_event::CheckpointSeal;
use crate::audit::settings::Durability;
use crate::audit::tree::published;
use domain::clock;
use tlog::checkpoint::SignedCheckpoint;
use tlog::key::SigningKey;

/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for the last round, when the journal is closed.
const LAST_ROUND: Duration = Duration::from_secs(2);

/// Niceness of the thread: beside busy workers it gets a tenth of a core, which hashes the lines of some
/// 100,000 uses a second.
const NICENESS: i32 = 10;

/// Runs until the sender of `stop` is dropped; then covers what has been written, and ends.
pub(crate) fn run(writer: &Arc<JournalWriter>, signer: &CheckpointSigner, stop: &Receiver<()>) {
    let witnesses = Witnesses::start(writer, &signer.settings.witnesses);
    // Of this thread alone. While the machine is saturated, it falls behind and catches up later.
    rustix::process::setpriority_process(None, NICENESS)
        .unwrap_or_else(|error| tracing::debug!(%error, "cannot lower the priority of the checkpoint thread"));
    let read_later = if signer.key.is_none() { wait_for_key(writer, signer, stop) } else { None };
    let Some(key) = signer.key.as_ref().or(read_later.as_ref()) else { return };
    let ended = run_rounds(writer, key, &witnesses, stop);
    // Nothing waits for hashing from now on.
    writer.first_unhashed.store(u64::MAX, Ordering::Relaxed);
    if let Err(error) = ended {
        writer.metrics.checkpoints_failed.inc();
        tracing::error!(error = &error as &dyn std::error::Error, path = %writer.settings.path.display(),
            "no further checkpoints of the audit journal are signed; records are written as before; find out with \
             `keygate audit verify --checkpoint` what has changed, then begin a new tree with a key of another name");
    }
}

/// Reads the key again until that succeeds; `None` when the journal is closed before.
fn wait_for_key(writer: &JournalWriter, signer: &CheckpointSigner, stop: &Receiver<()>) -> Option<SigningKey> {
    // The disk must not fill for it.
    writer.first_unhashed.store(u64::MAX, Ordering::Relaxed);
    loop {
        match signer::read_key(&signer.settings) {
            Ok(key) => {
                writer.first_unhashed.store(0, Ordering::Relaxed);
                tracing::info!("the key that signs checkpoints of the audit journal was read; checkpoints go on");
                return Some(key);
            }
            Err(_) => writer.metrics.checkpoints_failed.inc(),
        }
        if stop.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
    }
}

fn run_rounds(
    writer: &Arc<JournalWriter>,
    key: &SigningKey,
    witnesses: &Witnesses,
    stop: &Receiver<()>,
) -> Result<(), TreeError> {
    let mut tree = None;
    let mut publish = |head: TreeHead| publish(writer, key, witnesses, head);
    let mut is_failing = false;
    loop {
        let proceed = || stop.try_recv() == Err(TryRecvError::Empty);
        let round = advance(writer, key, &mut tree, written_end(writer), &proceed, &mut publish);
        note_round(writer, round, &mut is_failing)?;
        if stop.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    let begun = Instant::now();
    advance(writer, key, &mut tree, sync_all(writer), &|| begun.elapsed() < LAST_ROUND, &mut publish).map(drop)
}

/// Hashes what is on disk, and returns the oldest segment that is not hashed. Opens the tree first, when
/// that has failed before.
fn advance(
    writer: &JournalWriter,
    key: &SigningKey,
    tree: &mut Option<JournalTree>,
    end: Option<Point>,
    proceed: &impl Fn() -> bool,
    publish: &mut impl FnMut(TreeHead),
) -> Result<u64, TreeError> {
    let tree = match tree {
        Some(tree) => tree,
        None => {
            let current = writer.lock_segment().number;
            tree.insert(JournalTree::open(&writer.settings.path, key.public().name(), current)?)
        }
    };
    if let Some(end) = end {
        tree.advance(end, proceed, publish)?;
    }
    Ok(tree.first_unhashed())
}

/// Lets retention remove what is hashed. Passes on the failures that do not pass.
fn note_round(writer: &JournalWriter, round: Result<u64, TreeError>, is_failing: &mut bool) -> Result<(), TreeError> {
    match round {
        Ok(first_unhashed) => {
            *is_failing = false;
            writer.first_unhashed.store(first_unhashed, Ordering::Relaxed);
            Ok(())
        }
        Err(TreeError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
            // A disk that cannot be read must not fill for it.
            writer.first_unhashed.store(u64::MAX, Ordering::Relaxed);
            if !std::mem::replace(is_failing, true) {
                writer.metrics.checkpoints_failed.inc();
                tracing::warn!(%error, "cannot hash the lines of the audit journal for its next checkpoint; trying \
                                        again");
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The end of the lines that are on disk; `None` when that is not known.
fn written_end(writer: &JournalWriter) -> Option<Point> {
    let (has_failed, end) = match writer.settings.durability {
        // A batch is synced before the segment is unlocked.
        Durability::Synced => {
            let segment = writer.lock_segment();
            (writer.mode.get().sync_failed(), Point { segment: segment.number, offset: segment.length })
        }
        Durability::Written => {
            let synced = writer.synced.lock();
            (writer.timed_sync_failed.load(Ordering::Relaxed), *synced)
        }
    };
    // Before the first timed sync, it is not known which of the lines that the last process left are on disk.
    (!has_failed && end.offset > 0).then_some(end)
}

/// Writes and syncs all lines, and returns the end; `None` when that fails.
fn sync_all(writer: &JournalWriter) -> Option<Point> {
    let has_failed = writer.has_failed_sync();
    let mut segment = writer.lock_segment();
    let written = writer.flush(&mut segment).and_then(|()| writer.note_sync(segment.sync()));
    // Segments may have been closed since the last timed sync; one that is compressed is on disk.
    let before = *writer.synced.lock();
    let mut closed = before.segment.max(1)..segment.number;
    let is_whole = writer.settings.durability == Durability::Synced
        || closed.all(|number| {
            let synced = timed_sync::sync_closed(&writer.settings.path, number, File::sync_data);
            writer.note_sync(synced).is_ok()
        });
    (written.is_ok() && !has_failed && is_whole).then_some(Point { segment: segment.number, offset: segment.length })
}

fn publish(writer: &JournalWriter, key: &SigningKey, witnesses: &Witnesses, head: TreeHead) {
    let signed = SignedCheckpoint::sign(head.checkpoint.clone(), key);
    let note = signed.note.to_string();
    if let Err(error) = published::write(&writer.settings.path, published::SIGNED, &note) {
        // The line in the journal and the witnesses have it all the same.
        tracing::warn!(%error, path = %writer.settings.path.display(),
            "cannot write the file of the latest checkpoint");
    }
    let SignedCheckpoint { checkpoint, .. } = &signed;
    writer.append_event(&CheckpointSeal::new(checkpoint.size, &checkpoint.root, clock::now(), &note));
    writer.metrics.checkpoints_signed.inc();
    writer.metrics.checkpoint_lines.set(i64::try_from(checkpoint.size).unwrap_or(i64::MAX));
    witnesses.submit(&signed, &head);
}
