//! Shipper: follows the journal for one sink, on a thread of its own.
//!
//! ```text
//! connecting --position--> shipping <--> caught up ----Finish-------> ended
//!     ^                       |
//!     +---pause that grows----+ any failure
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::batch::{Batch, OPEN_AFTER};
use super::needs::Needs;
use super::position_file::PositionFile;
use super::rejected_file::RejectedFile;
use super::sink::Sink;
use super::sink_error::SinkError;
use super::status::{SinkState, Status};
use crate::audit::{JournalTap, RecordStream, StreamBatch, StreamPosition};
use domain::clock::{self, Micros};
use platform::metrics::SinkMetrics;
use platform::outbound::delivery::Backoff;

/// Records of a batch, about: large enough that the round trips of a delivery hardly count, and a few megabytes.
const BATCH: usize = 8192;
/// Time between two looks at a journal whose end was reached: records are at the sink within it and the delivery.
pub const INTERVAL: Duration = Duration::from_millis(500);
/// Time between two copies of a position that the sink keeps itself.
const COPY_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a sink has for a connection, and for a batch.
const DELIVER_WITHIN: Duration = Duration::from_secs(60);

/// Tries after a failure of a shipper that is to finish: its connection may have ended long before it is used.
const LAST_TRIES: u32 = 3;
/// Pause before each of them.
const LAST_PAUSE: Duration = Duration::from_millis(250);

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

/// Shipper of one sink.
#[derive(Debug)]
pub(super) struct Shipper {
    pub(super) sink: Sink,
    pub(super) tap: JournalTap,
    pub(super) journal: Uuid,
    pub(super) file: PositionFile,
    pub(super) rejected: RejectedFile,
    pub(super) status: Arc<Status>,
    pub(super) metrics: SinkMetrics,
    pub(super) command: watch::Receiver<ShipperCommand>,
    /// Name of the sink.
    pub(super) name: String,
    pub(super) needs: Arc<Needs>,
}

impl Shipper {
    /// Ships until a command ends it.
    pub(super) async fn run(mut self) {
        let mut command = self.command.clone();
        tokio::select! {
            () = self.ship_with_retry() => {}
            _ = command.wait_for(|command| *command == ShipperCommand::Stop) => {}
        }
    }

    async fn ship_with_retry(&mut self) {
        let mut backoff = Backoff::default();
        let mut last_tries = LAST_TRIES;
        while let Err(error) = self.ship(&mut backoff).await {
            self.sink.disconnect();
            if self.is_finishing() {
                self.note_failure(&error, LAST_PAUSE);
                if last_tries == 0 {
                    return;
                }
                last_tries -= 1;
                sleep(LAST_PAUSE).await;
                continue;
            }
            let pause = backoff.pause_after(error.retry());
            self.note_failure(&error, pause);
            let mut command = self.command.clone();
            tokio::select! {
                () = sleep(pause) => {}
                // A sink that is back by now gets the rest.
                _ = command.wait_for(|command| *command != ShipperCommand::Follow) => {}
            }
        }
    }

    /// Connects and ships; returns when the journal was delivered to its end, and the shipper is to finish.
    async fn ship(&mut self, backoff: &mut Backoff) -> Result<(), SinkError> {
        let gateway = self.tap.gateway().to_owned();
        let connected = timeout(DELIVER_WITHIN, self.sink.connect(self.journal, &gateway)).await;
        let own = connected.map_err(|_| SinkError::TimedOut(DELIVER_WITHIN))??;
        let keeps_position = own.is_some();
        let mut from = own.unwrap_or_else(|| self.file.read());
        self.status.lock().position = from;
        self.needs.set(&self.name, from.segment);
        let open_after = self.sink.takes_open_uses().then_some(OPEN_AFTER);
        let stream = RecordStream::open(self.tap.directory(), from, self.tap.end(), open_after);
        let mut stream = stream.map_err(SinkError::Journal)?;
        // Lines are numbered on: a journal with fewer of them than the sink has taken is an older one,
        // whatever its segments.
        if stream.has_lost_lines() || from.line >= self.tap.next_line() {
            self.note_older_journal(&from);
            // The copy of the position was put back with the journal: what was written since is behind it, and
            // the rest comes again.
            let copy = self.file.read();
            if keeps_position && copy.is_before(&from) {
                let opened = RecordStream::open(self.tap.directory(), copy, self.tap.end(), open_after);
                stream = opened.map_err(SinkError::Journal)?;
            }
        }
        let mut last_delivery = Instant::now();
        // A copy of the position, for the time before the sink is reached after a restart.
        let mut last_copy = None;
        loop {
            // In this order: when it is to finish, the journal is closed, and this end is its last.
            let is_finishing = self.is_finishing();
            let now = clock::now();
            let read = stream.next_batch(self.tap.end(), BATCH, now).map_err(SinkError::Journal)?;
            let reached_end = read.reached_end;
            let is_due = self.sink.heartbeat().is_some_and(|pause| last_delivery.elapsed() >= pause);
            if read.position != from || !read.records.is_empty() || is_due {
                from = self.deliver(read, from, now, keeps_position).await?;
                last_delivery = Instant::now();
                if keeps_position && last_copy.is_none_or(|at: Instant| at.elapsed() >= COPY_INTERVAL) {
                    self.copy_position(&from);
                    last_copy = Some(last_delivery);
                }
                backoff.reset();
            } else {
                self.note_caught_up(now);
            }
            if reached_end && is_finishing {
                return Ok(());
            }
            if reached_end {
                self.pause().await;
            }
        }
    }

    /// Delivers a batch, and makes its position durable.
    async fn deliver(
        &mut self,
        read: StreamBatch,
        from: StreamPosition,
        now: Micros,
        keeps_position: bool,
    ) -> Result<StreamPosition, SinkError> {
        let complete_until = if read.reached_end { Some(now) } else { read.last_time };
        let known = self.status.lock().complete_until;
        let batch = Batch {
            journal: self.journal,
            gateway: self.tap.gateway().to_owned(),
            records: read.records,
            checkpoints: read.checkpoints,
            from,
            to: read.position,
            complete_until: complete_until.or(known).unwrap_or(Micros(0)),
        };
        let delivered = timeout(DELIVER_WITHIN, self.sink.deliver(&batch, &mut self.rejected)).await;
        delivered.map_err(|_| SinkError::TimedOut(DELIVER_WITHIN))??;
        if !keeps_position && batch.to != batch.from {
            self.file.write(&batch.to).map_err(SinkError::Position)?;
        }
        self.note_delivery(&batch, read.reached_end, (read.skipped_segments, read.skipped_lines));
        Ok(batch.to)
    }

    /// Copies the position that the sink keeps. Nothing but the status and retention relies on the copy.
    fn copy_position(&self, position: &StreamPosition) {
        if let Err(error) = self.file.write_unsynced(position) {
            tracing::debug!(%error, "cannot copy the position of an audit sink");
        }
    }

    fn note_delivery(&mut self, batch: &Batch, reached_end: bool, (skipped, skipped_lines): (u64, u64)) {
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

    fn note_caught_up(&self, now: Micros) {
        let mut progress = self.status.lock();
        progress.state = SinkState::CaughtUp;
        progress.complete_until = Some(now);
        progress.failing_since = None;
        progress.error = None;
    }

    /// Logs a failure once, until it is over or another one.
    fn note_failure(&self, error: &SinkError, pause: Duration) {
        self.metrics.failures.inc();
        let text = error.in_full();
        let mut progress = self.status.lock();
        progress.state = SinkState::Failing;
        progress.failing_since.get_or_insert_with(Instant::now);
        let known = progress.error.replace(text.clone());
        drop(progress);
        let target = self.sink.target();
        if known.as_ref() == Some(&text) {
            tracing::debug!(error = text, target, ?pause, "still cannot ship the audit");
        } else {
            tracing::warn!(error = text, target, "cannot ship the audit; the journal keeps it, and it is tried again");
        }
    }

    fn is_finishing(&self) -> bool {
        *self.command.borrow() != ShipperCommand::Follow
    }

    async fn pause(&self) {
        let mut command = self.command.clone();
        tokio::select! {
            () = sleep(INTERVAL) => {}
            _ = command.wait_for(|command| *command != ShipperCommand::Follow) => {}
        }
    }
}
