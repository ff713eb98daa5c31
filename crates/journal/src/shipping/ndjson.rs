//! Lines of JSON: records, as `keygate audit export` prints them, and checkpoints, whose only member is `checkpoint`.
//!
//! The same record, or checkpoint, gives the same bytes each time.

use serde::Serialize;

use crate::audit::{JournalCheckpoint, Record};

/// A checkpoint as a line: no record has this member.
#[derive(Serialize)]
struct CheckpointLine<'a> {
    checkpoint: &'a JournalCheckpoint,
}

/// Appends a record and a line feed.
pub(super) fn push_line(out: &mut Vec<u8>, record: &Record) {
    push(out, record);
}

/// Appends a checkpoint and a line feed.
pub(super) fn push_checkpoint(out: &mut Vec<u8>, checkpoint: &JournalCheckpoint) {
    push(out, &CheckpointLine { checkpoint });
}

/// The lines of some records.
pub(super) fn lines(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.len() * 512);
    records.iter().for_each(|record| push_line(&mut out, record));
    out
}

/// The lines of some checkpoints.
pub(super) fn checkpoint_lines(checkpoints: &[JournalCheckpoint]) -> Vec<u8> {
    let mut out = Vec::new();
    checkpoints.iter().for_each(|checkpoint| push_checkpoint(&mut out, checkpoint));
    out
}

fn push(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *out, value).expect("there are no maps, and a Vec takes every write");
    out.push(b'\n');
}
