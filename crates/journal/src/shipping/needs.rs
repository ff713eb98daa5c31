//! Segments of the journal that sinks still need: retention waits for them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::audit::JournalTap;

/// The first segment that each sink needs, by its name. Shared by all shippers. A shipper that ends leaves its segment
/// here: retention waits for the next one.
#[derive(Debug)]
pub(super) struct Needs {
    /// Gets the least of them after each change.
    tap: JournalTap,
    /// Locked until the tap has the change, so that no older one comes after it.
    segments: Mutex<BTreeMap<String, u64>>,
}

impl Needs {
    pub(super) fn new(tap: JournalTap) -> Self {
        Self { tap, segments: Mutex::default() }
    }

    /// Notes the first segment that a sink needs.
    pub(super) fn set(&self, sink: &str, segment: u64) {
        self.change(|segments| {
            segments.insert(sink.to_owned(), segment);
        });
    }

    /// Replaces all of them: those of sinks that are no longer configured are not waited for.
    pub(super) fn replace(&self, needed: BTreeMap<String, u64>) {
        self.change(|segments| *segments = needed);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, u64>)) {
        let mut segments = self.segments.lock();
        change(&mut segments);
        self.tap.keep_from(segments.values().min().copied());
    }
}
