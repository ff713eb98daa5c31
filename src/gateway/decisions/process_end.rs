//! The end of the process, as other proxies are told of it.

use std::sync::Arc;

use tokio::sync::watch;

/// Stages on the way to the end of the process, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    #[default]
    Serving,
    /// Proxies are to ask elsewhere.
    Leaving,
    /// All streams end, without an error, so that their exchanges go on.
    Ending,
}

/// The way to the end of a process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ProcessEnd(Arc<watch::Sender<Stage>>);

impl ProcessEnd {
    /// Tells proxies to ask elsewhere.
    pub fn leave(&self) {
        self.0.send_replace(Stage::Leaving);
    }

    /// Ends all streams, those that begin later as well.
    pub fn end_streams(&self) {
        self.0.send_replace(Stage::Ending);
    }

    pub(super) fn has_reached(&self, stage: Stage) -> bool {
        *self.0.borrow() >= stage
    }

    /// Completes when the process has reached a stage.
    pub(super) async fn wait_for(&self, stage: Stage) {
        // The sender is held here, so that waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|reached| *reached >= stage).await;
    }
}
