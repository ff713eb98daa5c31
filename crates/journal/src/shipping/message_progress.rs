//! Progress of a batch that is sent message by message: a message that was taken is not sent again
//! when a later one fails.
//!
//! - A message has up to [`LIMIT`] records, or checkpoints; never both. One that is refused is sent in
//!   parts ([`Isolation`]).
//! - A batch that is delivered again, after the journal has grown, is cut at the same places first: repeated messages
//!   are identical. Only a restart forgets what was taken.

use super::batch::Batch;
use super::isolation::{Isolation, SentPart};
use super::message::Message;
use super::rejected_file::RejectedFile;
use super::sink_error::SinkError;
use crate::audit::{JournalCheckpoint, Record};

/// Records of a message at most: some hundreds of kilobytes.
const LIMIT: usize = 1000;

/// Progress of the batch that is being sent. It belongs to the shipper of one sink, and outlives its connections.
/// Dropped, it has the next shipper send the batch from its first message on.
#[derive(Debug, Default)]
pub(super) struct MessageProgress {
    /// The batch that was begun, and not taken as a whole; none between two.
    current: Option<Cut>,
    /// Position that the sink is known to have taken.
    isolation: Isolation,
}

/// The batch that is being sent, or failed.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Line of the journal before it.
    line: u64,
    /// Its records and checkpoints when it was first sent.
    records: usize,
    checkpoints: usize,
    /// The first records and checkpoints of it that were taken, or set aside.
    done_records: usize,
    done_checkpoints: usize,
}

impl MessageProgress {
    /// Sends what was not taken yet of a batch.
    pub(super) async fn deliver(
        &mut self,
        batch: &Batch,
        rejected: &mut RejectedFile,
        mut send: impl AsyncFnMut(Message<'_>) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        for message in self.begin(batch) {
            let Self { current, isolation } = self;
            let note = |sent: SentPart<'_>| current.iter_mut().for_each(|cut| cut.note_done(sent.part));
            isolation.send(message, &batch.records, rejected, &mut send, note).await?;
        }
        self.current = None;
        Ok(())
    }

    /// The messages of a batch that are not done yet.
    fn begin<'a>(&mut self, batch: &'a Batch) -> Vec<Message<'a>> {
        let line = batch.from.line;
        let records = batch.records.len();
        let checkpoints = batch.checkpoints.len();
        let is_grown = |cut: &Cut| cut.line == line && cut.records <= records && cut.checkpoints <= checkpoints;
        let new = Cut { line, records, checkpoints, done_records: 0, done_checkpoints: 0 };
        let cut = *self.current.insert(self.current.filter(is_grown).unwrap_or(new));
        let (old_records, new_records) = batch.records.split_at(cut.records);
        let (old_checkpoints, new_checkpoints) = batch.checkpoints.split_at(cut.checkpoints);
        let done_records = cut.done_records;
        let done_checkpoints = cut.done_checkpoints;
        let old = messages((old_records, done_records), (old_checkpoints, done_checkpoints));
        let rest = |done: usize, old: usize| done.saturating_sub(old);
        let new = messages(
            (new_records, rest(done_records, cut.records)),
            (new_checkpoints, rest(done_checkpoints, cut.checkpoints)),
        );
        old.chain(new).collect()
    }
}

impl Cut {
    /// Notes that the next part was taken, or set aside.
    fn note_done(&mut self, part: Message<'_>) {
        match part {
            Message::Records(records) => self.done_records += records.len(),
            Message::Checkpoints(checkpoints) => self.done_checkpoints += checkpoints.len(),
        }
    }
}

/// Messages of some records and checkpoints, of which the first ones are done.
fn messages<'a>(
    (records, done_records): (&'a [Record], usize),
    (checkpoints, done_checkpoints): (&'a [JournalCheckpoint], usize),
) -> impl Iterator<Item = Message<'a>> {
    let records = chunks(records, done_records).map(Message::Records);
    records.chain(chunks(checkpoints, done_checkpoints).map(Message::Checkpoints))
}

/// Chunks of a slice whose first items are done, cut where they would be without that.
fn chunks<T>(items: &[T], done: usize) -> impl Iterator<Item = &[T]> {
    let rest = items
        .chunks(LIMIT)
        .enumerate()
        .map(move |(number, chunk)| &chunk[done.saturating_sub(number * LIMIT).min(chunk.len())..]);
    rest.filter(|chunk| !chunk.is_empty())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::StreamPosition;
    use domain::clock::Micros;

    fn record(number: usize) -> Record {
        let text = format!(
            r#"{{"id":"{}","time":"2026-11-22T20:00:00.000000Z","key_id":null,"user_id":null,"org_id":null,
            "auth_method":"api-key","ip":null,"user_agent":null,"action":"a","method":"GET","path":"/",
            "outcome":"completed",
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

    fn note_done(progress: &mut MessageProgress, records: usize, checkpoints: usize) {
        let cut = progress.current.as_mut().unwrap();
        cut.done_records += records;
        cut.done_checkpoints += checkpoints;
    }

    #[test]
    fn failed_batch_goes_on_where_it_was_and_is_cut_at_the_same_places() {
        let mut progress = MessageProgress::default();
        assert_eq!(begin(&mut progress, &batch(7, 1100, 1)), [('r', 1000), ('r', 100), ('c', 1)]);
        // The journal has grown meanwhile.
        let whole = [('r', 1000), ('r', 100), ('c', 1), ('r', 100), ('c', 2)];
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), whole);
        note_done(&mut progress, 1100, 0);
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), whole[2..]);
        // A part of the next message, after some records of it were refused.
        note_done(&mut progress, 10, 1);
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), [('r', 90), ('c', 2)]);
        progress.current = None;
        assert_eq!(begin(&mut progress, &batch(7, 1200, 3)), [('r', 1000), ('r', 200), ('c', 3)]);
    }

    #[test]
    fn another_batch_begins_anew() {
        let mut progress = MessageProgress::default();
        assert_eq!(begin(&mut progress, &batch(7, 2, 0)), [('r', 2)]);
        note_done(&mut progress, 2, 0);
        assert_eq!(begin(&mut progress, &batch(9, 2, 1)), [('r', 2), ('c', 1)]);
        note_done(&mut progress, 2, 0);
        assert_eq!(begin(&mut progress, &batch(9, 1, 1)), [('r', 1), ('c', 1)], "of a journal that has lost its end");
        assert_eq!(begin(&mut progress, &batch(10, 0, 0)), []);
    }
}
