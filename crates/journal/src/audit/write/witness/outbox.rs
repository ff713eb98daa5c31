//! Outbox of a witness: the newest checkpoint that it has not got. An older one that waits is replaced.

use parking_lot::Mutex;
use tokio::sync::Notify;

use tlog::checkpoint::SignedCheckpoint;
use tlog::range::LeafRange;

/// A checkpoint that waits to be sent to a witness.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) signed: SignedCheckpoint,
    /// All lines.
    pub(super) whole: LeafRange,
    /// Those since the submission before.
    pub(super) since: LeafRange,
}

/// The newest checkpoint for a witness.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Option<Submission>>,
    has_come: Notify,
}

impl Outbox {
    pub(super) fn put(&self, mut next: Submission) {
        let mut waiting = self.waiting.lock();
        let since = waiting.take().map(|before| before.since);
        if let Some(mut since) = since {
            since.extend(&next.since);
            next.since = since;
        }
        *waiting = Some(next);
        self.has_come.notify_one();
    }

    /// Takes the newest checkpoint, and waits for one while there is none.
    pub(super) async fn take(&self) -> Submission {
        loop {
            let waiting = self.waiting.lock().take();
            match waiting {
                Some(submission) => return submission,
                None => self.has_come.notified().await,
            }
        }
    }
}
