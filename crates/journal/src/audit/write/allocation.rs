//! Space of a segment file that is allocated before it is written.
//!
//! - Every segment is allocated ahead of its end, so that writing it needs no free space.
//! - The last [`RESERVE`] bytes are kept for changes by management: when the disk is full, uses are refused while a
//!   revocation is still recorded. Retention may use a part of them to make room.
//! - Where the file system cannot allocate in advance, there is no reserve, and a write fails when it fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use platform::disk;

/// Bytes that only changes by management may use: some 8000 changes, more than an operator makes until there is room
/// again.
pub(crate) const RESERVE: u64 = 2 << 20;
/// Bytes that are allocated at a time: one system call for some 18,000 uses.
const CHUNK: u64 = 4 << 20;
/// Pause after a failed allocation. Until then further attempts fail at once: on a full disk each one costs the file
/// system a search, and requests come by the thousand.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Part of a file's blocks that may hold no content, but the file system's own tables.
const BLOCK_SLACK: u64 = 64 << 10;

/// Lines by what they may use of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Uses, and everything else that must leave the reserve alone.
    Use,
    /// The record of a removal, which makes room.
    Removal,
    /// Changes by management.
    Change,
}

impl Purpose {
    /// Bytes of the reserve that must be left.
    fn left(self) -> u64 {
        match self {
            Self::Use => RESERVE,
            Self::Removal => RESERVE / 2,
            Self::Change => 0,
        }
    }
}

/// The allocated space of a file.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// Offset up to which blocks are allocated; `u64::MAX` where the file system cannot allocate in advance.
    end: u64,
    /// After a failed attempt: the time of the next one, and its error.
    failed: Option<(Instant, io::ErrorKind)>,
}

impl Allocation {
    /// Bytes that lines may take after `length`.
    pub(crate) fn room(&self, length: u64, purpose: Purpose) -> u64 {
        self.end.saturating_sub(length).saturating_sub(purpose.left())
    }

    /// Allocates space for `more` bytes after `length`, and the reserve after them.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] and the like; what was allocated before stays.
    pub(crate) fn extend(&mut self, file: &File, length: u64, more: u64) -> io::Result<()> {
        if let Some((retry_at, kind)) = self.failed
            && Instant::now() < retry_at
        {
            return Err(kind.into());
        }
        let needed = length + more + RESERVE;
        // When there is no room for a whole chunk, there may be for what is needed now.
        let extended =
            self.allocate_to(file, length, needed + CHUNK).or_else(|_| self.allocate_to(file, length, needed));
        self.failed = extended.as_ref().err().map(|error| (Instant::now() + RETRY_DELAY, error.kind()));
        extended
    }

    /// Allocates half of the reserve at the beginning of a file, where there is no space for all of it: enough for
    /// changes by management, and for nothing else.
    ///
    /// # Errors
    /// As [`Allocation::extend`].
    pub(crate) fn extend_half(&mut self, file: &File) -> io::Result<()> {
        self.allocate_to(file, 0, RESERVE / 2)
    }

    fn allocate_to(&mut self, file: &File, length: u64, to: u64) -> io::Result<()> {
        let from = self.end.max(length);
        if from < to {
            self.end = if disk::allocate(file, from, to - from)? { to } else { u64::MAX };
        }
        Ok(())
    }

    /// Takes over what an earlier process has allocated behind the end of a file. Some file systems do not allocate
    /// again what is allocated already when they are full.
    pub(crate) fn adopt(&mut self, file: &File) {
        let blocks = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        self.end = self.end.max(blocks.saturating_sub(BLOCK_SLACK));
    }

    /// Notes that the file was cut to `length`, which frees what was allocated behind it.
    pub(crate) fn cut(&mut self, length: u64) {
        if self.end != u64::MAX {
            self.end = self.end.min(length);
        }
    }

    /// True when the last attempt to allocate has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_for_changes() {
        let file = tempfile::tempfile().unwrap();
        let mut allocation = Allocation::default();
        assert_eq!((allocation.room(0, Purpose::Use), allocation.room(0, Purpose::Change)), (0, 0));
        allocation.extend(&file, 100, 1000).unwrap();
        assert!(allocation.room(100, Purpose::Use) >= 1000);
        assert!(allocation.room(100, Purpose::Change) >= 1000 + RESERVE);
        allocation.cut(100);
        // Only a file system without allocation in advance has room that was not allocated.
        assert!(allocation.end == u64::MAX || allocation.room(100, Purpose::Change) == 0);
        assert!(!allocation.has_failed());
    }
}
