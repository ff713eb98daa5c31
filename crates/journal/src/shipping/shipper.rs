//! Shipper: follows the journal for one sink, on a thread of its own. It performs the actions of [`ShipSteps`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::batch::{Batch, OPEN_AFTER};
use super::needs::Needs;
use super::position_file::PositionFile;
use super::rejected_file::RejectedFile;
use super::settings::ShippedRecords;
use super::sink::Sink;
use super::sink_error::SinkError;
use super::status::{SinkState, Status};
use super::steps::{PartEnd, ShipAction, ShipEvent, ShipSteps};
use crate::audit::{JournalTap, RecordStream, StreamPosition};
use domain::clock::{self, Micros};
use platform::metrics::SinkMetrics;
use platform::outbound::delivery::random_jitter;

/// Records of a batch, about: large enough that the round trips of a delivery hardly count, and a few megabytes.
const BATCH: usize = 8192;
/// Time that a sink has for a connection, and for a batch.
pub(super) const DELIVER_WITHIN: Duration = Duration::from_secs(60);

/// Command to a shipper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShipperCommand {
    /// Follow the journal.
    Follow,
    /// Deliver what is in the journal, and end. A sink that fails is tried a few times more.
    Finish,
    /// End now.
    Stop,
}

/// Shipper of one sink. It belongs to its thread. Dropped at any await, it loses nothing: what was being delivered is
/// delivered again by the next one.
#[derive(Debug)]
pub(super) struct Shipper {
    pub(super) sink: Sink,
    /// The records that go to it.
    pub(super) records: ShippedRecords,
    /// End and name of the journal. It does not keep the journal open.
    pub(super) tap: JournalTap,
    pub(super) journal: Uuid,
    /// Position, or the copy of one that the sink keeps. No other shipper of this name runs, so only this one writes
    /// it.
    pub(super) file: PositionFile,
    pub(super) rejected: RejectedFile,
    /// Written by this shipper; read by reports and metrics.
    pub(super) status: Arc<Status>,
    pub(super) metrics: SinkMetrics,
    /// Set by those who run the shippers.
    pub(super) command: watch::Receiver<ShipperCommand>,
    /// Name of the sink.
    pub(super) name: String,
    /// Shared by all shippers: retention waits for the segment that each needs.
    pub(super) needs: Arc<Needs>,
    /// The journal from the position on; none until it is opened after a connection.
    pub(super) stream: Option<RecordStream>,
    /// The part that was read last.
    pub(super) part: Option<Part>,
}

/// Part of the journal that is delivered, or was.
#[derive(Debug)]
pub(super) struct Part {
    batch: Batch,
    reached_end: bool,
    skipped_segments: u64,
    skipped_lines: u64,
}

impl Shipper {
    /// Ships until a command ends it.
    pub(super) async fn run(mut self) {
        let mut command = self.command.clone();
        tokio::select! {
            () = self.ship() => {}
            _ = command.wait_for(|command| *command == ShipperCommand::Stop) => {}
        }
    }

    /// Returns when the journal was delivered to its end, or the last tries have failed, and the shipper is to finish.
    async fn ship(&mut self) {
        let mut steps = ShipSteps::new(self.sink.heartbeat(), Instant::now());
        let mut action = ShipAction::Connect;
        while action != ShipAction::End {
            action = match self.perform(action, steps.position()).await {
                Ok(event) => steps.step(event, Instant::now()),
                Err(error) => self.fail(&mut steps, &error),
            };
        }
    }

    /// Performs an action. `from` is the end of what the sink has taken.
    async fn perform(&mut self, action: ShipAction, from: StreamPosition) -> Result<ShipEvent, SinkError> {
        match action {
            ShipAction::Connect => return self.connect().await,
            ShipAction::Open(at) => {
                let has_lost_lines = self.open(at)?;
                if has_lost_lines {
                    self.note_older_journal(&at);
                }
                return Ok(ShipEvent::Opened { has_lost_lines });
            }
            ShipAction::ReadCopy => return Ok(ShipEvent::CopyRead(self.file.read())),
            ShipAction::OpenAtCopy(at) => return Ok(ShipEvent::Opened { has_lost_lines: self.open(at)? }),
            ShipAction::Read => return self.read(from),
            ShipAction::Deliver => self.deliver().await?,
            ShipAction::WritePosition(position) => self.file.write(&position).map_err(SinkError::Position)?,
            ShipAction::Confirm { copies_position } => self.confirm(copies_position),
            ShipAction::NoteCaughtUp => self.note_caught_up(),
            ShipAction::Pause(time) => self.pause(time).await,
            ShipAction::LastPause(time) => sleep(time).await,
            ShipAction::End => unreachable!("the loop ends before it"),
        }
        Ok(ShipEvent::Done)
    }

    async fn connect(&mut self) -> Result<ShipEvent, SinkError> {
        let gateway = self.tap.gateway().to_owned();
        let connected = timeout(DELIVER_WITHIN, self.sink.connect(self.journal, &gateway)).await;
        let own = connected.map_err(|_| SinkError::TimedOut(DELIVER_WITHIN))??;
        let position = own.unwrap_or_else(|| self.file.read());
        self.status.lock().position = position;
        self.needs.set(&self.name, position.segment);
        Ok(ShipEvent::Connected { position, keeps_position: own.is_some() })
    }

    /// Opens the journal at a position. Returns whether it no longer has the lines before it.
    fn open(&mut self, at: StreamPosition) -> Result<bool, SinkError> {
        let open_after = self.sink.takes_open_uses().then_some(OPEN_AFTER);
        let stream = RecordStream::open(self.tap.directory(), at, self.tap.end(), open_after);
        let stream = self.stream.insert(stream.map_err(SinkError::Journal)?);
        // Lines are numbered on: a journal with fewer of them than the sink has taken is an older one,
        // whatever its segments.
        Ok(stream.has_lost_lines() || at.line >= self.tap.next_line())
    }

    /// Reads the next part. It begins where the sink is.
    fn read(&mut self, from: StreamPosition) -> Result<ShipEvent, SinkError> {
        // In this order: when it is to finish, the journal is closed, and this end is its last.
        let is_finishing = self.is_finishing();
        let now = clock::now();
        let stream = self.stream.as_mut().expect("the journal is opened before it is read");
        let read = stream.next_batch(self.tap.end(), BATCH, now).map_err(SinkError::Journal)?;
        let complete_until = if read.reached_end { Some(now) } else { read.last_time };
        let known = self.status.lock().complete_until;
        // Also a part of which nothing goes to the sink is delivered: its position moves on.
        let has_records = !read.records.is_empty();
        let (mut records, mut checkpoints) = (read.records, read.checkpoints);
        if self.records != ShippedRecords::All {
            records.retain(|record| self.records.include(record));
            checkpoints.clear();
        }
        let batch = Batch {
            journal: self.journal,
            gateway: self.tap.gateway().to_owned(),
            records,
            checkpoints,
            from,
            to: read.position,
            complete_until: complete_until.or(known).unwrap_or(Micros(0)),
        };
        let end = PartEnd { position: batch.to, reached_end: read.reached_end, is_finishing };
        self.part = Some(Part {
            batch,
            reached_end: read.reached_end,
            skipped_segments: read.skipped_segments,
            skipped_lines: read.skipped_lines,
        });
        Ok(ShipEvent::Read { end, has_records })
    }

    async fn deliver(&mut self) -> Result<(), SinkError> {
        let Self { sink, rejected, part, .. } = self;
        let part = part.as_ref().expect("a part is read before it is delivered");
        let delivered = timeout(DELIVER_WITHIN, sink.deliver(&part.batch, rejected)).await;
        delivered.map_err(|_| SinkError::TimedOut(DELIVER_WITHIN))?
    }

    /// Notes that the part is at the sink.
    fn confirm(&mut self, copies_position: bool) {
        let part = self.part.take().expect("a part is read before it is delivered");
        self.note_delivery(&part);
        if copies_position {
            self.copy_position(&part.batch.to);
        }
    }

    /// Gives the connection up after a failure. Returns the next action.
    fn fail(&mut self, steps: &mut ShipSteps, error: &SinkError) -> ShipAction {
        self.sink.disconnect();
        self.part = None;
        let is_finishing = self.is_finishing();
        let action = steps
            .step(ShipEvent::Failed { retry: error.retry(), is_finishing, jitter: random_jitter() }, Instant::now());
        self.note_failure(error, action);
        action
    }

    /// Copies the position that the sink keeps. Nothing but the status and retention relies on the copy.
    fn copy_position(&self, position: &StreamPosition) {
        if let Err(error) = self.file.write_unsynced(position) {
            tracing::debug!(%error, "cannot copy the position of an audit sink");
        }
    }

    fn note_delivery(&mut self, part: &Part) {
        let &Part { ref batch, reached_end, skipped_segments: skipped, skipped_lines } = part;
        let count = (batch.records.len() as u64).saturating_sub(self.rejected.end_batch());
        self.metrics.records.inc_by(count);
        self.metrics.skipped.inc_by(skipped);
        self.metrics.skipped_lines.inc_by(skipped_lines);
        let was_failing = {
            let mut progress = self.status.lock();
            progress.state = if reached_end { SinkState::CaughtUp } else { SinkState::Shipping };
            progress.position = batch.to;
            progress.delivered += count;
            progress.last_delivery = Some(clock::now());
            progress.complete_until = Some(batch.complete_until);
            progress.skipped_segments += skipped;
            progress.skipped_lines += skipped_lines;
            progress.deliveries += 1;
            progress.failing_since = None;
            progress.error.take().is_some()
        };
        if was_failing {
            tracing::info!(target = self.sink.target(), "the audit is shipped again");
        }
        if skipped > 0 {
            tracing::error!(
                segments = skipped,
                target = self.sink.target(),
                "segments of the audit journal were removed or damaged before they were shipped; their records are \
                 missing at the sink"
            );
        }
        if skipped_lines > 0 {
            tracing::error!(
                lines = skipped_lines,
                target = self.sink.target(),
                "damaged lines of the audit journal cannot be shipped; see `keygate audit verify`"
            );
        }
        self.needs.set(&self.name, batch.to.segment);
    }

    /// Logs that the sink has taken lines that the journal no longer has.
    fn note_older_journal(&self, taken: &StreamPosition) {
        self.metrics.older_journal.inc();
        tracing::error!(
            target = self.sink.target(),
            taken = taken.line,
            next = self.tap.next_line(),
            segment = taken.segment,
            "the audit journal no longer has the last lines that this sink has taken: it was put back to an earlier \
             state, has lost its end, or is damaged; compare it with all checkpoints of the sink by `keygate audit \
             verify --checkpoint`"
        );
    }

    fn note_caught_up(&self) {
        let complete_until = self.part.as_ref().map(|part| part.batch.complete_until);
        let mut progress = self.status.lock();
        progress.state = SinkState::CaughtUp;
        progress.complete_until = complete_until;
        progress.failing_since = None;
        progress.error = None;
    }

    /// Logs a failure once, until it is over or another one.
    fn note_failure(&self, error: &SinkError, next: ShipAction) {
        self.metrics.failures.inc();
        let text = error.in_full();
        let mut progress = self.status.lock();
        progress.state = SinkState::Failing;
        progress.failing_since.get_or_insert_with(Instant::now);
        let known = progress.error.replace(text.clone());
        drop(progress);
        let target = self.sink.target();
        if known.as_ref() == Some(&text) {
            tracing::debug!(error = text, target, ?next, "still cannot ship the audit");
        } else {
            tracing::warn!(error = text, target, "cannot ship the audit; the journal keeps it, and it is tried again");
        }
    }

    fn is_finishing(&self) -> bool {
        *self.command.borrow() != ShipperCommand::Follow
    }

    /// Pauses for a time, or until the shipper is to finish.
    async fn pause(&self, time: Duration) {
        let mut command = self.command.clone();
        tokio::select! {
            () = sleep(time) => {}
            _ = command.wait_for(|command| *command != ShipperCommand::Follow) => {}
        }
    }
}
