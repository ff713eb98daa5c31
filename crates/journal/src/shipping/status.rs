//! Status of a shipper: shared by its thread, the metrics and the admin socket.

use std::fmt;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::audit::{JournalTap, StreamPosition};
use domain::clock::Micros;
use domain::counted::Counted;

/// State of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkState {
    /// It has not been reached yet.
    #[default]
    Connecting,
    /// It takes records, and is behind.
    Shipping,
    /// It has taken everything.
    CaughtUp,
    /// It failed, and is tried again.
    Failing,
}

/// Report on a sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Its name.
    pub sink: String,
    /// Its kind, by the word of the configuration.
    pub kind: String,
    /// The place to which records go.
    pub target: String,
    /// Its state.
    pub state: SinkState,
    /// Lines of the journal that it has not taken: at most two for each record.
    pub lag_records: u64,
    /// Age of the oldest of them, in seconds; 0 when it has taken everything.
    pub lag_seconds: f64,
    /// Segment of its position.
    pub segment: u64,
    /// Offset in the segment.
    pub offset: u64,
    /// Records delivered since the start of the gateway.
    pub delivered: u64,
    /// Time of the last delivery.
    #[serde(with = "domain::clock::rfc3339::option")]
    pub last_delivery: Option<Micros>,
    /// Time up to which the journal's records are complete at the sink.
    #[serde(with = "domain::clock::rfc3339::option")]
    pub complete_until: Option<Micros>,
    /// Segments that were removed or damaged before it had taken them, since the start.
    pub skipped_segments: u64,
    /// Lines of the journal that were damaged when their turn came, since the start.
    pub skipped_lines: u64,
    /// Records that the sink has refused, or that were too old for it, since the start.
    pub rejected: u64,
    /// The last failure, while it fails.
    pub error: Option<String>,
}

/// A defect of a sink. Its text is what commands show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkDefect {
    /// It fails, and is tried again: the last failure.
    Failing(String),
    /// So many records were refused, or were too old; and the name of the file that has them.
    Rejected(u64, String),
    /// So many segments are missing there.
    SkippedSegments(u64),
    /// So many damaged lines are missing there.
    SkippedLines(u64),
}

impl fmt::Display for SinkState {
    /// The word of reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Shipping => "shipping",
            Self::CaughtUp => "caught_up",
            Self::Failing => "failing",
        })
    }
}

impl fmt::Display for SinkDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing(error) => f.write_str(error),
            Self::Rejected(records, file) => {
                write!(f, "{} not taken; see {file} and the log", Counted(*records, "record"))
            }
            Self::SkippedSegments(segments) => {
                write!(f, "{} skipped: removed or damaged before it took them", Counted(*segments, "segment"))
            }
            Self::SkippedLines(lines) => write!(f, "{} skipped: they were damaged", Counted(*lines, "line")),
        }
    }
}

impl SinkReport {
    /// The defects of the sink, the failure first.
    pub fn defects(&self) -> Vec<SinkDefect> {
        let failure = self.error.as_deref().unwrap_or("it fails");
        let file = format!("ship/{}.rejected.jsonl", self.sink);
        let counted = |count: u64, defect: fn(u64) -> SinkDefect| (count > 0).then(|| defect(count));
        let defects = [
            (self.state == SinkState::Failing).then(|| SinkDefect::Failing(failure.to_owned())),
            (self.rejected > 0).then_some(SinkDefect::Rejected(self.rejected, file)),
            counted(self.skipped_segments, SinkDefect::SkippedSegments),
            counted(self.skipped_lines, SinkDefect::SkippedLines),
        ];
        defects.into_iter().flatten().collect()
    }

    /// State and lag in words.
    pub fn summary(&self) -> String {
        format!("{}, {} and {:.1} s behind", self.state, Counted(self.lag_records, "line"), self.lag_seconds)
    }
}

/// Status of a shipper.
#[derive(Debug)]
pub(super) struct Status {
    name: String,
    kind: &'static str,
    target: String,
    progress: Mutex<Progress>,
}

/// The part of a status that changes.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) state: SinkState,
    pub(super) position: StreamPosition,
    pub(super) delivered: u64,
    pub(super) last_delivery: Option<Micros>,
    pub(super) complete_until: Option<Micros>,
    pub(super) skipped_segments: u64,
    pub(super) skipped_lines: u64,
    pub(super) rejected: u64,
    /// Batches that were delivered, or parts of one.
    pub(super) deliveries: u64,
    /// The first failure since the last success.
    pub(super) failing_since: Option<Instant>,
    pub(super) error: Option<String>,
}

impl Status {
    pub(super) fn new(name: &str, kind: &'static str, target: String, position: StreamPosition) -> Self {
        let progress = Progress { position, ..Progress::default() };
        Self { name: name.to_owned(), kind, target, progress: Mutex::new(progress) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// The report at a time. `started` stands in for the freshness of a sink that was not reached yet.
    pub(super) fn report(&self, tap: &JournalTap, started: Micros, now: Micros) -> SinkReport {
        // Before the position: a line between the two counts as lag, and never as a negative one.
        let progress = self.lock();
        let lag_records = tap.next_line().saturating_sub(progress.position.line.saturating_add(1));
        let since = progress.complete_until.unwrap_or(started);
        #[allow(clippy::cast_precision_loss, reason = "a number for people")]
        let lag_seconds = if lag_records == 0 { 0.0 } else { now.since(since) as f64 / 1e6 };
        SinkReport {
            sink: self.name.clone(),
            kind: self.kind.to_owned(),
            target: self.target.clone(),
            state: progress.state,
            lag_records,
            lag_seconds,
            segment: progress.position.segment,
            offset: progress.position.offset,
            delivered: progress.delivered,
            last_delivery: progress.last_delivery,
            complete_until: progress.complete_until,
            skipped_segments: progress.skipped_segments,
            skipped_lines: progress.skipped_lines,
            rejected: progress.rejected,
            error: progress.error.clone(),
        }
    }
}
