//! Slot of a request that the process after a hand-over has admitted.

use tokio::sync::mpsc::UnboundedSender;

/// Slot that the successor holds for a request of this process. Dropping it releases the slot there.
#[derive(Debug)]
pub struct SuccessorPermit {
    number: u64,
    released: UnboundedSender<u64>,
}

impl SuccessorPermit {
    /// The slot of the decision with this number; `released` takes the numbers of released ones.
    pub fn new(number: u64, released: UnboundedSender<u64>) -> Self {
        Self { number, released }
    }
}

impl Drop for SuccessorPermit {
    fn drop(&mut self) {
        // A successor that is gone holds no slots.
        self.released.send(self.number).ok();
    }
}
