//! Progress of a batch that is sent message by message: a message that was taken is not sent again when a later one fails.
//!
//! - A message has up to [`LIMIT`] records, or checkpoints; never both.
//! - A batch that is delivered again, after the journal has grown, is cut at the same places first: repeated messages are
//!   identical. Only a restart forgets what was taken.

use super::batch::Batch;
use crate::audit::{JournalCheckpoint, Record};

/// Records of a message at most: some hundreds of kilobytes.
const LIMIT: usize = 1000;

/// Message of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Message<'a> {
    Records(&'a [Record]),
    Checkpoints(&'a [JournalCheckpoint]),
}

/// Progress of the batch that is being sent.
#[derive(Debug, Default)]
pub(super) struct MessageProgress {
    current: Option<Cut>,
}

/// The batch that is being sent, or failed.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Line of the journal before it.
    line: u64,
    /// Its records and checkpoints when it was first sent.
    records: usize,
    checkpoints: usize,
    /// Messages of it that were taken.
    taken: usize,
}

impl MessageProgress {
    /// The messages of a batch that were not taken yet.
    pub(super) fn begin<'a>(&mut self, batch: &'a Batch) -> Vec<Message<'a>> {
        let (line, records, checkpoints) = (batch.from.line, batch.records.len(), batch.checkpoints.len());
        let is_grown = |cut: &Cut| cut.line == line && cut.records <= records && cut.checkpoints <= checkpoints;
        let new = Cut { line, records, checkpoints, taken: 0 };
        let cut = *self.current.insert(self.current.filter(is_grown).unwrap_or(new));
        let (old_records, new_records) = batch.records.split_at(cut.records);
        let (old_checkpoints, new_checkpoints) = batch.checkpoints.split_at(cut.checkpoints);
        let old = messages(old_records, old_checkpoints);
        old.chain(messages(new_records, new_checkpoints)).skip(cut.taken).collect()
    }

    /// The receiver has taken the next message.
    pub(super) fn note_taken(&mut self) {
        if let Some(cut) = &mut self.current {
            cut.taken += 1;
        }
    }

    /// All messages of the batch were taken.
    pub(super) fn finish(&mut self) {
        self.current = None;
    }
}

fn messages<'a>(records: &'a [Record], checkpoints: &'a [JournalCheckpoint]) -> impl Iterator<Item = Message<'a>> {
    records.chunks(LIMIT).map(Message::Records).chain(checkpoints.chunks(LIMIT).map(Message::Checkpoints))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::StreamPosition;
    use crate::clock::Micros;

    fn record(number: usize) -> Record {
        let text = format!(
            r#"{{"id":"{}","time":"2026-11-22T20:00:00.000000Z","key_id":null,"user_id":null,"org_id":null,
            "auth_method":"api-key","ip":null,"user_agent":null,"action":"a","method":"GET","path":"/","outcome":"completed",
            "status":200,"duration_us":1,"request_bytes":0,"response_bytes":1,"gateway":"g"}}"#,
            Uuid::from_u128(number as u128)
        );
        serde_json::from_str(&text).unwrap()
    }

    fn batch(line: u64, records: usize, checkpoints: usize) -> Batch {
        let checkpoint = |number: usize| JournalCheckpoint {
            gateway: "g".into(),
            time: Micros(0),
            origin: "o".into(),
            size: number as u64,
            root: String::new(),
            note: String::new(),
        };
        Batch {
            journal: Uuid::nil(),
            gateway: "g".into(),
            records: (0..records).map(record).collect(),
            checkpoints: (0..checkpoints).map(checkpoint).collect(),
            from: StreamPosition { line, ..StreamPosition::START },
            to: StreamPosition::START,
            complete_until: Micros(0),
        }
    }

    /// The messages as their kinds, and the number of what is in them.
    fn begin(progress: &mut MessageProgress, batch: &Batch) -> Vec<(char, usize)> {
        let shown = progress.begin(batch).into_iter().map(|message| match message {
            Message::Records(records) => ('r', records.len()),
            Message::Checkpoints(checkpoints) => ('c', checkpoints.len()),
        });
        shown.collect()
    }

    #[test]
    fn failed_batch_goes_on_where_it_was_and_is_cut_at_the_same_places() {
        let mut progress = MessageProgress::default();
        assert_eq!(begin(&mut progress, &batch(7, 1100, 1)), [('r', 1000), ('r', 100), ('c', 1)]);
        // The journal has grown meanwhile.
        let whole = [('r', 1000), ('r', 100), ('c', 1), ('r', 100), ('c', 2)];
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), whole);
        progress.note_taken();
        progress.note_taken();
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), whole[2..]);
        progress.finish();
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), [('r', 1000), ('r', 200), ('c', 3)]);
    }

    #[test]
    fn another_batch_begins_anew() {
        let mut progress = MessageProgress::default();
        assert_eq!(begin(&mut progress, &batch(7, 2, 0)), [('r', 2)]);
        progress.note_taken();
        assert_eq!(begin(&mut progress, &batch(9, 2, 1)), [('r', 2), ('c', 1)]);
        progress.note_taken();
        assert_eq!(begin(&mut progress, &batch(9, 1, 1)), [('r', 1), ('c', 1)], "of a journal that has lost its end");
        assert_eq!(begin(&mut progress, &batch(10, 0, 0)), []);
    }
}
