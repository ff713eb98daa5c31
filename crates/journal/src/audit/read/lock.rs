//! The lock of a journal, as readers see it.

use std::fs::File;
use std::path::Path;

use crate::audit::format::segment;

/// True when a process holds the journal's lock.
pub(crate) fn is_locked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(segment::LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock))
}
