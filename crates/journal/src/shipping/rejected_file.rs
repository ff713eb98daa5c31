//! File of the records that a sink refuses, one by one: `ship/NAME.rejected.jsonl`.
//!
//! - A line has the record, the reason and the time. It is on the disk before the position goes beyond the record.
//! - Bounded: at [`LIMIT`] bytes the file becomes `NAME.rejected.old.jsonl`, in place of the one before. The journal
//!   has the records until its retention removes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::message::Message;
use super::sink_error::SinkError;
use super::status::Status;
use crate::audit::{JournalCheckpoint, Record, journal_id};
use crate::files;
use domain::clock::{self, Micros};
use platform::metrics::SinkMetrics;

/// Bytes of a file: some 30,000 records. There are two.
const LIMIT: u64 = 16 << 20;
/// Time between two lines in the log: an outsider may cause many refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// File of the records that a sink refuses.
#[derive(Debug)]
pub(super) struct RejectedFile {
    path: PathBuf,
    status: Arc<Status>,
    metrics: SinkMetrics,
    /// Records of the batch that is being delivered that are not delivered.
    in_batch: u64,
    last_log: Option<Instant>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(with = "clock::rfc3339")]
    rejected: Micros,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a Record>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a JournalCheckpoint>,
}

impl RejectedFile {
    pub(super) fn new(journal: &Path, sink: &str, status: Arc<Status>, metrics: SinkMetrics) -> Self {
        let path = journal_id::ship_directory(journal).join(format!("{sink}.rejected.jsonl"));
        Self { path, status, metrics, in_batch: 0, last_log: None }
    }

    /// Appends what a sink refuses, and counts it; it is on the disk when this returns.
    pub(super) fn add(&mut self, refused: Message<'_>, refusal: &SinkError) -> Result<(), SinkError> {
        let reason = refusal.in_full();
        let line = |record, checkpoint| Line { rejected: clock::now(), reason: &reason, record, checkpoint };
        let lines: Vec<Line<'_>> = match refused {
            Message::Records(records) => records.iter().map(|record| line(Some(record), None)).collect(),
            Message::Checkpoints(checkpoints) => checkpoints.iter().map(|one| line(None, Some(one))).collect(),
        };
        self.append(&lines).map_err(SinkError::Rejected)?;
        self.count_refused(lines.len() as u64);
        if self.last_log.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.last_log = Some(Instant::now());
            tracing::error!(
                reason,
                file = %self.path.display(),
                "a sink refuses a record of the audit, and takes others: it is missing there, and set aside in the \
                 file; further ones are counted, and logged once a minute"
            );
        }
        Ok(())
    }

    /// Counts records that the sink has refused.
    pub(super) fn count_refused(&mut self, records: u64) {
        self.metrics.refused.inc_by(records);
        self.count(records);
    }

    /// Counts records that were older than the retention of the sink.
    pub(super) fn count_too_old(&mut self, records: u64) {
        self.metrics.too_old.inc_by(records);
        self.count(records);
    }

    fn count(&mut self, records: u64) {
        self.in_batch += records;
        self.status.lock().rejected += records;
    }

    /// Ends a batch, and returns how many of its records were not delivered.
    pub(super) fn end_batch(&mut self) -> u64 {
        std::mem::take(&mut self.in_batch)
    }

    fn append(&self, lines: &[Line<'_>]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let length = fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        if length > 0 && length + text.len() as u64 > LIMIT {
            fs::rename(&self.path, self.path.with_extension("old.jsonl"))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(&text)?;
        file.sync_data()?;
        self.path.parent().map_or(Ok(()), files::sync_directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::StreamPosition;
    use platform::metrics::Metrics;
    use platform::outbound::delivery::PostError;

    #[test]
    fn two_files_bound_what_a_flood_of_refusals_takes() {
        let journal = tempfile::tempdir().unwrap();
        let directory = journal_id::ship_directory(journal.path());
        fs::create_dir(&directory).unwrap();
        let status = Arc::new(Status::new("siem", "http", String::new(), StreamPosition::START));
        let metrics = Metrics::new().shipping.sink("siem");
        let mut file = RejectedFile::new(journal.path(), "siem", Arc::clone(&status), metrics.clone());
        let checkpoint = JournalCheckpoint {
            gateway: "g".into(),
            time: Micros(0),
            origin: "o".into(),
            size: 1,
            root: String::new(),
            note: "x".repeat(3 << 20),
        };
        for _ in 0..20 {
            let refused = Message::Checkpoints(std::slice::from_ref(&checkpoint));
            file.add(refused, &PostError::Status { status: http::StatusCode::FORBIDDEN, retry_after: None }.into())
                .unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap()).collect();
        names.sort_by_key(|entry| entry.file_name());
        let sizes: Vec<_> = names.iter().map(|entry| entry.metadata().unwrap().len()).collect();
        let names: Vec<_> = names.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names, ["siem.rejected.jsonl", "siem.rejected.old.jsonl"]);
        assert!(sizes.iter().all(|size| *size > 0 && *size <= LIMIT), "{sizes:?}");
        assert_eq!((metrics.refused.get(), status.lock().rejected), (20, 20));
        let text = fs::read_to_string(directory.join("siem.rejected.jsonl")).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["reason"], "the server answers with status 403 Forbidden");
        assert_eq!(line["checkpoint"]["origin"], "o");
    }
}
