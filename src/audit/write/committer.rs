//! The committer: the thread that writes the lines that no request writes itself.
//!
//! - It writes outcomes within 10 ms, unless a later use has carried them out before.
//! - When `synced`, it alone writes: one write and one sync for all lines that were appended meanwhile (group commit).
//! - While there is traffic, it looks for lines by itself, and no request wakes it; it sleeps when there is none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::completion::BatchResult;
use super::pending::{JournalStatus, SpareBuffers};
use super::writer::JournalWriter;

/// Longest time that an outcome waits to be written together with others. A kill loses the outcomes of this time.
const MAX_OUTCOME_DELAY: Duration = Duration::from_millis(10);
/// Waits without a line after which the thread sleeps until a request wakes it: waking it costs the request a system call,
/// and a gateway without traffic should not wake up for nothing.
const IDLE_WAITS: u32 = 5;
/// Pause after a failed write: requests retry at once themselves, and this thread must not spin.
const RETRY_DELAY: Duration = Duration::from_millis(100);

const NO_PANIC: &str = "nothing panics while it holds the pending lines";

/// Runs until the journal is closed; then writes and syncs the remaining lines.
pub(crate) fn run(writer: &JournalWriter) {
    while wait_for_lines(writer) != JournalStatus::Closed {
        // The failure was logged, and those who wait for these lines were told by their completion.
        if writer.flush(&mut writer.lock_segment()).is_err() {
            std::thread::sleep(RETRY_DELAY);
        }
    }
    write_remaining(writer);
}

fn wait_for_lines(writer: &JournalWriter) -> JournalStatus {
    let mut idle_waits = 0;
    let mut pending = writer.lock_pending();
    loop {
        // Outcomes may wait a little for others; a request that waits for a sync may not.
        if !pending.sync_requested && pending.status != JournalStatus::Closed {
            pending = writer.wake.wait_timeout(pending, MAX_OUTCOME_DELAY).expect(NO_PANIC).0;
        }
        if !pending.is_empty() || pending.status == JournalStatus::Closed {
            return pending.status;
        }
        idle_waits += 1;
        if idle_waits == IDLE_WAITS {
            drop(pending);
            sleep_until_woken(writer);
            pending = writer.lock_pending();
            idle_waits = 0;
        }
    }
}

/// Sleeps until the first line, or until the journal is closed.
fn sleep_until_woken(writer: &JournalWriter) {
    let mut pending = writer.lock_pending();
    while pending.is_empty() && pending.status != JournalStatus::Closed {
        pending.committer_asleep = true;
        pending = writer.wake.wait(pending).expect(NO_PANIC);
    }
    pending.committer_asleep = false;
}

fn write_remaining(writer: &JournalWriter) {
    let mut segment = writer.lock_segment();
    let sync_failed = writer.sync_failed.load(Ordering::Relaxed);
    // After a failed sync nothing is written any more: the next start closes the open uses.
    if sync_failed || writer.flush(&mut segment).and_then(|()| segment.sync()).is_err() {
        tracing::error!(path = %writer.settings.path.display(),
            "the audit journal was closed without writing its last lines; their uses will be closed as aborted");
    }
    // A segment that became due while the journal was being closed was not begun.
    segment.discard_next(&writer.settings);
    // Releases those who wait for lines that will never be written.
    let left = writer.lock_pending().take_batch(SpareBuffers::default());
    left.complete(BatchResult::Failed);
}
