//! Condition of a journal: whether it records requests, and whether its records reach the disk.

use std::sync::atomic::Ordering;

use super::journal::Journal;
use super::mode::Mode;
use crate::audit::settings::OnUnavailable;

impl Journal {
    /// True when requests may be accepted now: uses can be recorded, or go unrecorded as configured. Takes no lock; a
    /// closed journal refuses only when it is to record.
    pub fn accepts_requests(&self) -> bool {
        let writer = &self.handle.writer;
        let mode = writer.mode.get();
        let works = !mode.write_fails() && !mode.sync_failed();
        works || writer.settings.on_unavailable == OnUnavailable::ServeUnrecorded
    }

    /// True when a sync (fsync) has failed: until a restart it is not known which records are on disk.
    pub fn has_failed_sync(&self) -> bool {
        self.handle.writer.has_failed_sync()
    }

    /// True while there is less free space on the journal's volume than the low-water mark.
    pub fn is_low_on_space(&self) -> bool {
        self.handle.writer.low_on_space.load(Ordering::Relaxed)
    }

    /// True when uses can be recorded now.
    pub fn is_available(&self) -> bool {
        matches!(self.handle.writer.mode.get(), Mode::Running | Mode::HandedOver)
    }
}
