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

    /// Fails once reads are to stop.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the read was abandoned"));
        }
        Ok(())
    }
}
