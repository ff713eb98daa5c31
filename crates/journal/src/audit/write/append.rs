//! Appending of lines by requests, and waiting until they are written.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;

use super::completion::{BatchCompletion, BatchResult};
use super::pending::PendingLines;
use super::writer::JournalWriter;
use crate::audit::error::Unavailable;
use crate::audit::format::event::OutcomeEvent;
use crate::audit::format::frame;
use crate::audit::settings::{Durability, OnUnavailable};

/// A line that was appended and is not written yet.
pub(crate) struct AppendedLine {
    completion: Arc<BatchCompletion>,
    /// No use was open before.
    is_alone: bool,
}

impl JournalWriter {
    /// Appends a line by `append`; when `synced`, wakes the committer for it.
    pub(crate) fn append(
        &self,
        append: impl FnOnce(&mut PendingLines) -> Option<Arc<BatchCompletion>>,
    ) -> Option<AppendedLine> {
        let mut pending = self.lock_pending();
        let is_alone = pending.open.is_empty();
        let completion = append(&mut pending)?;
        self.metrics.backlog.inc();
        match self.settings.durability {
            // One wake-up serves all who append before the committer takes the batch.
            Durability::Synced if !pending.sync_requested => {
                pending.sync_requested = true;
                self.wake.notify_one();
            }
            // A future that waits for others may be dropped meanwhile: then the committer writes the line.
            Durability::Written if !is_alone => self.wake_committer(&mut pending),
            _ => {}
        }
        Some(AppendedLine { completion, is_alone })
    }

    /// Appends an event about the journal itself, which the committer writes.
    pub(crate) fn append_event(&self, event: &impl Serialize) {
        let mut pending = self.lock_pending();
        let appended = frame::with_serialized(event, |body| pending.append_line(&body));
        self.metrics.backlog.add(i64::from(appended.is_some()));
        self.wake_committer(&mut pending);
    }

    /// Waits until an appended line is as durable as configured. When `written`, the first thread to come writes for
    /// all that have appended meanwhile: among them are the requests that are ready in the same turn of its event loop.
    pub(crate) async fn wait_written(&self, appended: Option<AppendedLine>) -> BatchResult {
        let result = self.wait_for(appended).await;
        if result == BatchResult::Written {
            self.metrics.written.inc();
        }
        result
    }

    async fn wait_for(&self, appended: Option<AppendedLine>) -> BatchResult {
        let Some(AppendedLine { completion, is_alone }) = appended else { return BatchResult::Failed };
        match self.settings.durability {
            Durability::Synced => completion.wait().await,
            Durability::Written => {
                // Without another open use there is no other request that could be ready.
                if !is_alone {
                    let_ready_tasks_run().await;
                }
                self.flush_for(&completion)
            }
        }
    }

    /// Decides, as configured, about a request that could not be recorded: refuses it, or lets it go on unrecorded.
    pub(crate) fn refuse_unless_unrecorded(&self) -> Result<(), Unavailable> {
        // A closed journal always refuses: the process is about to end.
        if self.mode.get().is_closed() || self.settings.on_unavailable == OnUnavailable::Refuse {
            self.metrics.refused.inc();
            return Err(Unavailable);
        }
        self.metrics.dropped.inc();
        Ok(())
    }

    /// Appends the outcome of a change by management, and waits until it is as durable as configured, so that a change
    /// that is acknowledged has its outcome whatever becomes of the process. Without room it stays pending.
    pub(crate) async fn end_change(&self, outcome: &OutcomeEvent) {
        let appended = self.append(|pending| pending.append_change_outcome(outcome));
        self.wait_for(appended).await;
    }

    /// Appends an outcome, which the committer writes unless a later use carries it out before.
    pub(crate) fn append_outcome(&self, outcome: &OutcomeEvent, is_change: bool) {
        let mut pending = self.lock_pending();
        if is_change {
            let appended = pending.append_change_outcome(outcome).is_some();
            self.metrics.backlog.add(i64::from(appended));
            return self.wake_committer(&mut pending);
        }
        let before = pending.events();
        if !pending.append_outcome(outcome) {
            self.metrics.dropped.inc();
        }
        self.metrics.backlog.add(pending.events() - before);
        self.wake_committer(&mut pending);
    }
}

/// Lets the tasks run first that are ready already: all whose events came in the same turn of the event loop.
///
/// The task is woken at once, behind them: without other tasks it goes on at once, and the event loop does not ask the
/// kernel for events before it does.
async fn let_ready_tasks_run() {
    let mut is_woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
