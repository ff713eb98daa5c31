//! The end of all streams, shortly before the process ends: without an error, so that the exchanges go on.

use std::sync::Arc;

use tokio::sync::watch;

/// Ends all streams of a process. Clones end the same ones.
#[derive(Clone, Debug, Default)]
pub struct StreamsEnd(Arc<watch::Sender<bool>>);

impl StreamsEnd {
    /// Ends all streams, those that begin later as well.
    pub fn end(&self) {
        self.0.send_replace(true);
    }

    /// Completes when all streams are to end.
    pub(super) async fn wait(&self) {
        // The sender is held here, so that waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|ended| *ended).await;
    }
}
