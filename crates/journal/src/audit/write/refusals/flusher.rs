//! The flusher: the thread that writes a record for each group of refusals when its second has ended.
//!
//! A group's slot is cleared only when its record is written. Its record has the id of its first refusal, by which the
//! next start finds out whether a group that was left in its slot is in the journal already.

use rustc_hash::FxHashSet;

use super::group::RefusalGroup;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment_event::SegmentHeader;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{frame, segment};
use crate::audit::index::IndexedUse;
use crate::audit::write::completion::BatchResult;
use crate::audit::write::writer::JournalWriter;
use domain::clock::Micros;

/// Groups whose lines are appended under one lock of the pending lines.
const GROUPS_PER_BATCH: usize = 256;

/// Runs until the journal is closed, then writes all that is left.
pub(crate) fn run(writer: &JournalWriter) {
    while writer.refusals.wait_until_due() {
        flush(writer, writer.refusals.take_ended());
        writer.refusals.note_rest();
    }
    flush_all(writer);
}

/// Writes the records of all groups.
pub(crate) fn flush_all(writer: &JournalWriter) {
    flush(writer, writer.refusals.take_all());
}

/// Writes the records of these groups. What cannot be written is kept for the next time.
fn flush(writer: &JournalWriter, mut groups: Vec<Box<RefusalGroup>>) {
    while !groups.is_empty() {
        let batch = groups.split_off(groups.len().saturating_sub(GROUPS_PER_BATCH));
        if write(writer, &batch) == BatchResult::Written {
            writer.refusals.clear(&batch);
            continue;
        }
        groups.extend(batch);
        return writer.refusals.restore(groups);
    }
}

fn write(writer: &JournalWriter, groups: &[Box<RefusalGroup>]) -> BatchResult {
    let completion = {
        let mut pending = writer.lock_pending();
        let lines = groups.iter().filter_map(|group| {
            let indexed = IndexedUse::from_event(&group.event);
            frame::with_serialized(&group.event, |body| pending.append_record(&body, indexed))
        });
        let completion = lines.last();
        writer.metrics.backlog.set(pending.events());
        completion
    };
    // Without a completion, the journal takes no lines any more.
    completion.map_or(BatchResult::Failed, |completion| writer.flush_for(&completion))
}

/// Recovers the groups that a killed gateway left in their slots: those that it had written to the journal are cleared,
/// the others are written.
pub(crate) fn recover(writer: &JournalWriter, left: Vec<Box<RefusalGroup>>) -> std::io::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let written = find_written(writer, &left)?;
    let (written, missing): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|group| written.contains(&group.event.id.as_u128()));
    writer.refusals.clear(&written);
    if !missing.is_empty() {
        let refusals: u64 = missing.iter().map(|group| group.event.uses()).sum();
        tracing::warn!(refusals, "recorded the refusals that the last gateway had counted when it was killed");
    }
    writer.refusals.restore(missing);
    flush_all(writer);
    Ok(())
}

/// Finds out which of the groups are in the journal. Segments are searched from the newest on, back to the one that was
/// begun before the first refusal.
fn find_written(writer: &JournalWriter, groups: &[Box<RefusalGroup>]) -> std::io::Result<FxHashSet<u128>> {
    let directory = &writer.settings.path;
    let sought: FxHashSet<u128> = groups.iter().map(|group| group.event.id.as_u128()).collect();
    let first = groups.iter().map(|group| group.first()).min().unwrap_or_default();
    let mut found = FxHashSet::default();
    let mut piece = Piece::default();
    for segment in segment::list(directory)?.iter().rev() {
        let mut created = None;
        for block in segment::blocks(segment.number, 0, segment.length) {
            source::read_block(directory, block, &mut piece)?;
            if block.start == 0 {
                created = created_at(&piece);
            }
            let records =
                line::split_lines(&piece).filter(|(_, line)| line::event_kind(line) == Some(EventKind::Record));
            found.extend(records.filter_map(|(_, line)| line::event_id(line)).filter(|id| sought.contains(id)));
        }
        if created.is_some_and(|created| created < first) {
            break;
        }
    }
    Ok(found)
}

/// The time at which the segment that begins with these lines was created.
fn created_at(lines: &[u8]) -> Option<Micros> {
    let (_, line) = line::split_lines(lines).next()?;
    serde_json::from_slice::<SegmentHeader<'_>>(line).ok().map(|header| header.created)
}
