//! Tap of a journal: the access of a shipper in the same process, which follows the journal and keeps its segments
//! until they are shipped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::journal::Journal;
use super::writer::JournalWriter;
use crate::audit::read::stream::JournalEnd;

/// Tap of a journal. It does not keep the journal open.
#[derive(Clone, Debug)]
pub struct JournalTap {
    writer: Arc<JournalWriter>,
}

impl Journal {
    /// Returns a tap.
    pub fn tap(&self) -> JournalTap {
        JournalTap { writer: Arc::clone(&self.handle.writer) }
    }
}

impl JournalTap {
    /// The directory of the journal.
    pub fn directory(&self) -> &Path {
        &self.writer.settings.path
    }

    /// The name of the gateway in its records.
    pub fn gateway(&self) -> &str {
        &self.writer.settings.gateway
    }

    /// The end of the journal: the lines before it are written, and stay.
    pub fn end(&self) -> JournalEnd {
        JournalEnd { point: self.writer.lock_segment().lasting_end() }
    }

    /// Number of the next line, over all segments.
    pub fn next_line(&self) -> u64 {
        self.writer.lock_pending().next
    }

    /// Keeps the segments from this number on, up to the size in the settings; `None` keeps none. Until the
    /// first call, all are kept.
    pub fn keep_from(&self, segment: Option<u64>) {
        self.writer.needed_from.store(segment.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
