//! Signal that stops a read of the journal whose caller is gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signal to stop a read. Clones are the same signal.
///
/// - A read checks it when it begins and before each block, so it stops within the time of reading 256 KiB.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Stops the reads that were given this signal.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Guard that stops the reads when it is dropped: with the future of a caller that is gone.
    pub fn on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Fails once reads are to stop.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the read was abandoned"));
        }
        Ok(())
    }
}

/// Guard that stops reads when it is dropped.
#[derive(Debug)]
pub struct StopOnDrop(StopSignal);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
