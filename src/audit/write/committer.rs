//! The thread that writes what no request writes itself.
//!
//! - Outcomes that no later use has carried out with it, it writes within [`TICK`].
//! - With `synced`, it alone writes: one write and one sync for all that came in meanwhile.
//! - While nothing is pending it sleeps.

use std::time::Duration;

use crate::audit::write::pending::{Fate, Phase};
use crate::audit::write::writer::Shared;

/// How long an outcome may wait for company. A kill loses no more of them than this.
const TICK: Duration = Duration::from_millis(10);
/// How long to wait after a failed write: the next request tries at once, this thread need not spin.
const RETRY: Duration = Duration::from_millis(100);

/// Runs until the journal is closed; then writes and syncs what is left.
pub(crate) fn run(shared: &Shared) {
    while wait(shared) != Phase::Closed {
        // A failure was logged, and told to whoever waits for these lines; the next round tries again.
        if shared.flush(&mut shared.output()).is_err() {
            std::thread::sleep(RETRY);
        }
    }
    finish(shared);
}

/// Waits for something to write.
fn wait(shared: &Shared) -> Phase {
    let poisoned = "nothing panics while it holds the pending lines";
    let mut pending = shared.pending();
    while pending.is_empty() && pending.phase != Phase::Closed {
        pending.asleep = true;
        pending = shared.wake.wait(pending).expect(poisoned);
    }
    pending.asleep = false;
    if !pending.urgent && pending.phase != Phase::Closed {
        pending = shared.wake.wait_timeout(pending, TICK).expect(poisoned).0;
    }
    pending.phase
}

fn finish(shared: &Shared) {
    let mut output = shared.output();
    let poisoned = shared.poisoned.load(std::sync::atomic::Ordering::Relaxed);
    if poisoned || shared.flush(&mut output).and_then(|()| output.sync()).is_err() {
        tracing::error!(path = %shared.settings.path.display(), "the audit journal was not closed well");
    }
    // Whatever is left waits in vain.
    let left = shared.pending().take(Vec::new());
    left.ticket.resolve(Fate::Failed);
}
